//! Redirects of a listener to `https`.

use http::header::{CONTENT_LENGTH, LOCATION};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Response, StatusCode};

use crate::acme;
use crate::body::ResponseBody;
use crate::error::ProxyError;
use crate::forward::host_of;

/// Port of `https` URLs that clients are redirected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HttpsPort(pub(crate) u16);

/// The redirect of a request; `None` for challenges of certificate authorities.
pub(crate) fn redirect_to_https(
    head: &Parts,
    HttpsPort(port): HttpsPort,
) -> Result<Option<Response<ResponseBody>>, ProxyError> {
    if head.uri.path().starts_with(acme::PATH) {
        return Ok(None);
    }
    let malformed = ProxyError::BadRequest("The Host header is malformed.");
    let host: Authority = host_of(head)?.parse().map_err(|_| malformed)?;
    let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let host = host.host();
    let location = match port {
        443 => format!("https://{host}{path}"),
        port => format!("https://{host}:{port}{path}"),
    };
    let mut response = Response::new(ResponseBody::empty());
    // Unlike 301, it keeps the method.
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::try_from(location).map_err(|_| malformed)?);
    headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    Ok(Some(response))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn location(host: &str, path: &str, port: u16) -> Option<String> {
        let request = Request::builder().uri(path).header("host", host).body(()).unwrap();
        let (head, ()) = request.into_parts();
        let redirect = redirect_to_https(&head, HttpsPort(port)).unwrap()?;
        assert_eq!(redirect.status(), StatusCode::PERMANENT_REDIRECT);
        Some(redirect.headers()[LOCATION].to_str().unwrap().to_owned())
    }

    #[test]
    fn the_target_has_the_host_path_and_query_of_the_request() {
        let of = |host, path, port| location(host, path, port).unwrap();
        assert_eq!(of("a.example:8080", "/x?y=1", 443), "https://a.example/x?y=1");
        assert_eq!(of("a.example", "/", 8443), "https://a.example:8443/");
        assert_eq!(of("[::1]:80", "/", 443), "https://[::1]/");
    }

    #[test]
    fn challenges_are_not_redirected_and_a_malformed_host_is_refused() {
        assert_eq!(location("a.example", "/.well-known/acme-challenge/x", 443), None);
        for host in ["a b", "", "a/b"] {
            let request = Request::builder().uri("/").header("host", host).body(()).unwrap();
            assert!(redirect_to_https(&request.into_parts().0, HttpsPort(443)).is_err(), "{host}");
        }
    }
}
