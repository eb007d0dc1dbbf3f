//! Files of a directory. Nothing outside of it is served, by links or paths, nor files
//! whose name begins with a dot.

use std::fs::{File, Metadata};
use std::io::{self, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::UNIX_EPOCH;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, LOCATION, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncSeekExt as _, ReadBuf};

use crate::body::{BoxError, ResponseBody};
use crate::error::ProxyError;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Body of a file.
#[derive(Debug)]
pub(crate) struct FileBody {
    file: tokio::fs::File,
    left: u64,
}

/// An opened file.
struct Opened {
    file: File,
    length: u64,
    kind: &'static str,
    etag: String,
    /// Seconds since 1970.
    modified: Option<u64>,
}

/// What a path leads to.
enum Lookup {
    File(Opened),
    /// A directory whose path has no slash at its end.
    Directory,
    None,
}

/// The response to a request for a file; `prefix` is the part of the path that is not its name.
pub(super) async fn respond(
    root: &Path,
    index: Option<&str>,
    prefix: &str,
    head: &Parts,
) -> Result<Response<ResponseBody>, ProxyError> {
    if head.method != Method::GET && head.method != Method::HEAD {
        let mut response = ProxyError::MethodNotAllowed.response();
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let name = head.uri.path().strip_prefix(prefix).unwrap_or_default();
    let name = decoded(name).ok_or(ProxyError::NoRoute)?;
    let (root, index) = (root.to_owned(), index.map(str::to_owned));
    let lookup = tokio::task::spawn_blocking(move || find(&root, &name, index.as_deref())).await;
    let opened = match lookup {
        Ok(Ok(Lookup::File(opened))) => opened,
        Ok(Ok(Lookup::Directory)) => return Ok(to_directory(head)),
        // A file that may not be read is as one that does not exist.
        _ => return Err(ProxyError::NoRoute),
    };
    let mut response = Response::new(ResponseBody::empty());
    let headers = response.headers_mut();
    put(headers, &opened);
    if is_unchanged(&head.headers, &opened) {
        headers.remove(CONTENT_TYPE);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    let (mut start, mut length) = (0, opened.length);
    match range(&head.headers, &opened) {
        Some(Some((first, last))) => {
            (start, length) = (first, last - first + 1);
            let value = format!("bytes {first}-{last}/{}", opened.length);
            insert(headers, CONTENT_RANGE, &value);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        Some(None) => {
            insert(headers, CONTENT_RANGE, &format!("bytes */{}", opened.length));
            headers.remove(CONTENT_TYPE);
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            return Ok(response);
        }
        None => {}
    }
    insert(response.headers_mut(), CONTENT_LENGTH, &length.to_string());
    if head.method == Method::HEAD || length == 0 {
        return Ok(response);
    }
    let mut file = tokio::fs::File::from_std(opened.file);
    if start > 0 {
        file.seek(SeekFrom::Start(start)).await.map_err(|_| ProxyError::NoRoute)?;
    }
    file.set_max_buf_size(CHUNK_BYTES);
    Ok(response.map(|_| ResponseBody::file(FileBody { file, left: length })))
}

/// The name of a file without escapes; `None` if it cannot be one. An escaped slash is not a
/// separator: routes and limits have not seen one.
fn decoded(name: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for segment in name.trim_start_matches('/').split('/') {
        let segment = percent_decode_str(segment).decode_utf8().ok()?;
        if segment.starts_with('.') || segment.contains(['/', '\\', '\0']) {
            return None;
        }
        path.push(&*segment);
    }
    path.components().all(|part| matches!(part, Component::Normal(_))).then_some(path)
}

fn find(root: &Path, name: &Path, index: Option<&str>) -> io::Result<Lookup> {
    let mut path = resolve(root, name)?;
    let mut metadata = path.metadata()?;
    if metadata.is_dir() {
        let Some(index) = index else { return Ok(Lookup::None) };
        let is_root = name.as_os_str().is_empty();
        if !is_root && !name.as_os_str().to_string_lossy().ends_with('/') {
            return Ok(Lookup::Directory);
        }
        path = resolve(root, &name.join(index))?;
        metadata = path.metadata()?;
    }
    // Neither a directory, nor a pipe, which would block.
    if !metadata.is_file() {
        return Ok(Lookup::None);
    }
    let file = File::open(&path)?;
    let metadata = file.metadata()?;
    Ok(Lookup::File(Opened::new(file, &metadata, &path)))
}

/// The real path of a name, which links must not lead out of the root.
fn resolve(root: &Path, name: &Path) -> io::Result<PathBuf> {
    let path = root.join(name).canonicalize()?;
    match path.starts_with(root) {
        true => Ok(path),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

impl Opened {
    fn new(file: File, metadata: &Metadata, path: &Path) -> Self {
        let modified = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let nanos = modified.map_or(0, |at| at.as_nanos());
        Self {
            file,
            length: metadata.len(),
            kind: content_type(path),
            etag: format!("\"{nanos:x}-{:x}\"", metadata.len()),
            modified: modified.map(|at| at.as_secs()),
        }
    }
}

/// Redirects to the path with a slash, so that relative links of its index work.
fn to_directory(head: &Parts) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    let path = head.uri.path().replace('\\', "%5C");
    let query = head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    insert(response.headers_mut(), LOCATION, &format!("{path}/{query}"));
    response
}

fn put(headers: &mut HeaderMap, opened: &Opened) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(opened.kind));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    insert(headers, ETAG, &opened.etag);
    if let Some(modified) = opened.modified {
        let at = UNIX_EPOCH + std::time::Duration::from_secs(modified);
        insert(headers, LAST_MODIFIED, &httpdate::fmt_http_date(at));
    }
}

fn insert(headers: &mut HeaderMap, name: http::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Whether the client has this version (RFC 9110, section 13.2.2).
fn is_unchanged(headers: &HeaderMap, opened: &Opened) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if let Some(tags) = text(IF_NONE_MATCH) {
        let tags = tags.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        return tags.into_iter().any(|tag| tag == "*" || tag == opened.etag);
    }
    let since = text(IF_MODIFIED_SINCE).and_then(seconds);
    since.zip(opened.modified).is_some_and(|(since, modified)| modified <= since)
}

fn seconds(date: &str) -> Option<u64> {
    let at = httpdate::parse_http_date(date).ok()?;
    at.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// The first and the last byte of a range; `Some(None)` if there are none, `None` for all bytes.
/// Several ranges are answered with all bytes.
fn range(headers: &HeaderMap, opened: &Opened) -> Option<Option<(u64, u64)>> {
    let text = headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.trim();
    if let Some(version) = headers.get(IF_RANGE) {
        let version = version.to_str().ok()?;
        let is_date = || seconds(version).is_some_and(|at| opened.modified == Some(at));
        if version != opened.etag && !is_date() {
            return None;
        }
    }
    let (first, last) = text.split_once('-')?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let end = opened.length.checked_sub(1);
    let Some(first) = number(first) else {
        // The last bytes.
        let count = number(last).filter(|_| first.is_empty())?;
        let end = end.filter(|_| count > 0);
        return Some(end.map(|end| (opened.length.saturating_sub(count), end)));
    };
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    Some(end.filter(|end| first <= *end).map(|end| (first, last.min(end))))
}

/// The type of a file, by its extension.
fn content_type(path: &Path) -> &'static str {
    let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
    match extension.as_deref().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "txt" => "text/plain; charset=utf-8",
        "md" => "text/markdown; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "xml" => "application/xml",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "wasm" => "application/wasm",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "ico" => "image/x-icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "otf" => "font/otf",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        _ => "application/octet-stream",
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let mut bytes = BytesMut::zeroed(wanted);
        let mut buffer = ReadBuf::new(&mut bytes);
        if let Err(error) = ready!(Pin::new(&mut self.file).poll_read(cx, &mut buffer)) {
            return Poll::Ready(Some(Err(error.into())));
        }
        let read = buffer.filled().len();
        if read == 0 {
            return Poll::Ready(Some(Err("the file became shorter".into())));
        }
        bytes.truncate(read);
        self.left -= read as u64;
        Poll::Ready(Some(Ok(Frame::data(bytes.freeze()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(length: u64) -> Opened {
        let file = File::open("/dev/null").unwrap();
        let (kind, etag) = ("text/plain", "\"1-a\"".to_owned());
        Opened { file, length, kind, etag, modified: Some(784_111_777) }
    }

    fn headers(pairs: &[(http::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn names_stay_below_the_root() {
        for (name, expected) in [
            ("/a.txt", Some("a.txt")),
            ("/a/b%20c.txt", Some("a/b c.txt")),
            ("/a/", Some("a/")),
            ("", Some("")),
            ("/../etc/passwd", None),
            ("/a/%2e%2e/b", None),
            ("/.git/config", None),
            ("/a/.env", None),
            ("/a%2Fb", None),
            ("/%2Fetc/passwd", None),
            ("/a%5C..%5Cb", None),
            ("/a%00b", None),
            ("/%ff", None),
        ] {
            assert_eq!(decoded(name).as_deref(), expected.map(Path::new), "{name}");
        }
    }

    #[test]
    fn a_range_is_within_the_file() {
        for (text, expected) in [
            ("bytes=0-3", Some(Some((0, 3)))),
            ("bytes=4-", Some(Some((4, 9)))),
            ("bytes=4-99", Some(Some((4, 9)))),
            ("bytes=-3", Some(Some((7, 9)))),
            ("bytes=-99", Some(Some((0, 9)))),
            ("bytes=10-", Some(None)),
            ("bytes=-0", Some(None)),
            ("bytes=99999999999999999999-", Some(None)),
            ("bytes=3-1", None),
            ("bytes=0-1,3-4", None),
            ("bytes=a-b", None),
            ("bytes=-", None),
            ("lines=0-1", None),
        ] {
            assert_eq!(range(&headers(&[(RANGE, text)]), &opened(10)), expected, "{text}");
        }
        assert_eq!(range(&headers(&[(RANGE, "bytes=0-")]), &opened(0)), Some(None));
        let other = [(RANGE, "bytes=0-3"), (IF_RANGE, "\"other\"")];
        assert_eq!(range(&headers(&other), &opened(10)), None);
        let same = [(RANGE, "bytes=0-3"), (IF_RANGE, "\"1-a\"")];
        assert_eq!(range(&headers(&same), &opened(10)), Some(Some((0, 3))));
    }

    #[test]
    fn a_client_with_the_same_version_gets_no_body() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (pairs, expected) in [
            (vec![(IF_NONE_MATCH, "\"x\", W/\"1-a\"")], true),
            (vec![(IF_NONE_MATCH, "*")], true),
            (vec![(IF_MODIFIED_SINCE, date)], true),
            (vec![(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, date)], false),
            (vec![(IF_MODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:36 GMT")], false),
            (vec![(IF_MODIFIED_SINCE, "yesterday")], false),
            (vec![], false),
        ] {
            assert_eq!(is_unchanged(&headers(&pairs), &opened(10)), expected, "{pairs:?}");
        }
    }
}
