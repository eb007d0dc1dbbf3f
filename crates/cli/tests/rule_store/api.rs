//! A client of `/api/v1/rules`.

use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::http::{Answer, asked_on};
use crate::support::service::Service;

/// The rules of one node.
pub(crate) struct Rules<'a> {
    pub(crate) address: &'a str,
    pub(crate) token: Option<&'a str>,
}

pub(crate) fn rules(service: &Service) -> Rules<'_> {
    Rules { address: &service.admin, token: None }
}

/// The only file of a set that limits users.
pub(crate) fn limit(per_year: u64) -> String {
    format!(
        "domain: shop\ndescriptors:\n  - {{ key: user, rate_limit: {{ unit: year, requests_per_unit: {per_year} }} }}\n"
    )
}

pub(crate) fn files(text: &str) -> Value {
    json!([{ "name": "rules.yaml", "text": text }])
}

impl Rules<'_> {
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let token = self.token.map(|token| format!("authorization: Bearer {token}\r\n"));
        let request = format!(
            "{method} /api/v1/rules{path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{}content-length: {}\r\n\r\n{body}",
            self.address,
            token.unwrap_or_default(),
            body.len()
        );
        asked_on(TcpStream::connect(self.address).unwrap(), request.as_bytes())
    }

    pub(crate) fn json(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.send(method, path, &body);
        let json = serde_json::from_str(&answer.body);
        (answer.status, json.unwrap_or_else(|_| panic!("{answer:?}")))
    }

    pub(crate) fn active(&self) -> Value {
        let (status, body) = self.json("GET", "", &Value::Null);
        assert_eq!(status, 200, "{body}");
        body
    }

    /// Proposes another limit, based on the active revision.
    pub(crate) fn edit(&self, per_year: u64, note: &str) -> Value {
        let base = &self.active()["revision"]["number"];
        let body = json!({ "files": files(&limit(per_year)), "base": base, "note": note });
        let (status, body) = self.json("POST", "/revisions", &body);
        assert_eq!(status, 201, "{body}");
        body
    }
}
