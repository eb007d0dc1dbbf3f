//! Lines of access logs as a site has them: clients that return, paths with identifiers and
//! queries, user agents of browsers, crawlers and programs, some requests in each second.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use fastrand::Rng;

/// Formats with a row; `csv` has the columns of [`CSV_HEAD`].
pub(super) const FORMATS: [&str; 6] =
    ["combined", "escaped", "envoy", "envoy-json", "caddy", "csv"];
pub(super) const CSV_HEAD: &str = "time,ip,method,uri,status,bytes,agent";
pub(super) const CSV_FORMAT: &str = "csv:time=time,client_ip=ip,method=method,uri=uri,status=status,bytes=bytes,header.user-agent=agent";

const CLIENTS: usize = 20_000;
const REQUESTS_PER_SECOND: u64 = 40;

const ENGINES: [&str; 6] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{}.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_{} like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.0 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (X11; Linux x86_64; rv:{}.0) Gecko/20100101 Firefox/{}.0",
    "Mozilla/5.0 (compatible; examplebot/2.{}; +https://bot.example/about.html)",
    "python-requests/2.{}.0",
    "curl/8.{}.1",
];

/// A request, in the words of every format.
struct Request {
    micros: i64,
    client: String,
    method: &'static str,
    uri: String,
    status: u16,
    bytes: u64,
    millis: u64,
    referer: String,
    user_agent: String,
}

/// So many lines of a format, the same ones each time.
pub(super) fn lines(format: &str, count: usize) -> Vec<u8> {
    let mut rng = Rng::with_seed(7);
    let clients: Vec<String> = (0..CLIENTS).map(|_| client(&mut rng)).collect();
    let mut text = String::with_capacity(count * 256);
    for number in 0..count as u64 {
        let request = request(&mut rng, &clients, number);
        request.write(&mut text, format);
        text.push('\n');
    }
    text.into_bytes()
}

fn client(rng: &mut Rng) -> String {
    match rng.u8(..8) {
        0 => Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(rng.u64(..))).to_string(),
        _ => Ipv4Addr::from(rng.u32(0x0100_0000..0xDF00_0000)).to_string(),
    }
}

fn request(rng: &mut Rng, clients: &[String], number: u64) -> Request {
    let uri = match rng.u8(..5) {
        0 => "/".to_owned(),
        1 => format!("/static/app.{:08x}.js", rng.u32(..)),
        2 => format!("/api/v1/orders/{}?page={}&sort=created", rng.u32(..1_000_000), rng.u8(1..20)),
        3 => format!("/products/{}-{}", ["shirt", "shoe", "hat"][rng.usize(..3)], rng.u32(..9_999)),
        _ => format!("/search?q=%C3%A9t%C3%A9+{}&utm_source=mail", rng.u16(..)),
    };
    let referer = match rng.u8(..3) {
        0 => "-".to_owned(),
        1 => "https://shop.example/".to_owned(),
        _ => format!("https://shop.example/products/{}", rng.u32(..9_999)),
    };
    let engine = ENGINES[rng.usize(..ENGINES.len())];
    Request {
        micros: 1_700_000_000_000_000 + (number * 1_000_000 / REQUESTS_PER_SECOND) as i64,
        // A few clients send much.
        client: clients[(rng.f64().powi(3) * clients.len() as f64) as usize].clone(),
        method: ["GET", "GET", "GET", "POST", "HEAD"][rng.usize(..5)],
        uri,
        status: [200, 200, 200, 304, 404, 429][rng.usize(..6)],
        bytes: rng.u64(..200_000),
        millis: rng.u64(..500),
        referer,
        user_agent: engine.replace("{}", &rng.u8(60..130).to_string()),
    }
}

impl Request {
    fn write(&self, text: &mut String, format: &str) {
        let Self { client, method, uri, status, bytes, millis, referer, user_agent, .. } = self;
        let (secs, micros) = (self.micros / 1_000_000, self.micros % 1_000_000);
        let (hour, minute, second) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
        let day = 14 + (secs - 1_699_920_000) / 86_400;
        // Writing to a string cannot fail.
        let _ = match format {
            "combined" => write!(
                text,
                "{client} - - [{day:02}/Nov/2023:{hour:02}:{minute:02}:{second:02} +0000] \"{method} {uri} HTTP/1.1\" {status} {bytes} \"{referer}\" \"{user_agent}\""
            ),
            // Every line has something to unescape.
            "escaped" => write!(
                text,
                "{client} - - [{day:02}/Nov/2023:{hour:02}:{minute:02}:{second:02} +0000] \"{method} {uri}&x=\\x22a\\x22 HTTP/1.1\" {status} {bytes} \"{referer}\" \"{user_agent} \\x22b\\x22\""
            ),
            "envoy" => write!(
                text,
                "[2023-11-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z] \"{method} {uri} HTTP/2\" {status} - 0 {bytes} {millis} 3 \"{client}\" \"{user_agent}\" \"cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2\" \"shop.example\" \"10.0.2.1:80\"",
                micros / 1000
            ),
            "envoy-json" => write!(
                text,
                "{{\"start_time\":\"2023-11-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z\",\"method\":\"{method}\",\"path\":\"{uri}\",\"protocol\":\"HTTP/2\",\"authority\":\"shop.example\",\"response_code\":{status},\"response_flags\":null,\"bytes_received\":0,\"bytes_sent\":{bytes},\"duration\":{millis},\"downstream_remote_address\":\"10.0.0.9:51234\",\"x_forwarded_for\":\"{client}\",\"user_agent\":\"{user_agent}\",\"request_id\":\"cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2\",\"upstream_host\":\"10.0.2.1:80\",\"upstream_cluster\":\"outbound|80||shop\"}}",
                micros / 1000
            ),
            "caddy" => write!(
                text,
                "{{\"level\":\"info\",\"ts\":{secs}.{micros:06},\"logger\":\"http.log.access\",\"msg\":\"handled request\",\"request\":{{\"remote_ip\":\"{client}\",\"remote_port\":\"41342\",\"client_ip\":\"{client}\",\"proto\":\"HTTP/2.0\",\"method\":\"{method}\",\"host\":\"shop.example\",\"uri\":\"{uri}\",\"headers\":{{\"User-Agent\":[\"{user_agent}\"],\"Accept\":[\"*/*\"],\"Referer\":[\"{referer}\"]}},\"tls\":{{\"resumed\":false,\"version\":772,\"server_name\":\"shop.example\"}}}},\"bytes_read\":0,\"user_id\":\"\",\"duration\":0.{millis:03},\"size\":{bytes},\"status\":{status},\"resp_headers\":{{\"Server\":[\"Caddy\"],\"Content-Type\":[\"text/html\"]}}}}"
            ),
            _ => write!(
                text,
                "2023-11-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06},{client},{method},{uri},{status},{bytes},\"{user_agent}\""
            ),
        };
    }
}
