//! A record is written by the rules of a format, as naively as possible, and read again.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::{any, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::{Just, Strategy};
use sluicegate_accesslog::{Headers, LineParser, Record, Scratch};
use sluicegate_core::time::{Span, Timestamp};

use crate::cases;

/// What a line is written from.
#[derive(Debug, Clone)]
struct Original {
    micros: i64,
    zone_minutes: i32,
    client_ip: IpAddr,
    method: String,
    uri: String,
    user: Option<String>,
    status: u16,
    bytes: u64,
    millis: u64,
    referer: Option<String>,
    user_agent: Option<String>,
}

fn originals() -> impl Strategy<Value = Original> {
    // Texts that mean absence are not texts of a request.
    let text = || {
        let some =
            "[ -~é\u{1}\\\\\"\\[\\],]{1,20}".prop_filter("absent", |text| text.trim() != "-");
        prop_oneof![1 => Just(None), 4 => some.prop_map(Some)]
    };
    let address = prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u16; 8]>().prop_map(|parts| IpAddr::from(parts).to_canonical()),
    ];
    let when = (0..4_000_000_000_000_000_i64, (-14 * 60..14 * 60_i32));
    let request = (address, "[A-Z]{1,7}", "/[!-~é\\\\\"]{0,20}");
    let response = (1..1_000_u16, any::<u32>(), any::<u32>());
    let user = prop_oneof![Just(None), "[a-z]([a-z \\[]{0,8}[a-z])?".prop_map(Some)];
    (when, request, user, response, text(), text()).prop_map(
        |(
            (micros, zone_minutes),
            (client_ip, method, uri),
            user,
            (status, bytes, millis),
            referer,
            user_agent,
        )| {
            let (bytes, millis) = (bytes.into(), millis.into());
            Original {
                micros,
                zone_minutes,
                client_ip,
                method,
                uri,
                user,
                status,
                bytes,
                millis,
                referer,
                user_agent,
            }
        },
    )
}

impl Original {
    /// The record, as far as the common fields of all formats go.
    fn record(&self, micros: i64) -> Record<'_> {
        let mut headers = Headers::default();
        for (name, text) in [("referer", &self.referer), ("user-agent", &self.user_agent)] {
            if let Some(text) = text {
                headers.push((name, text.as_bytes()));
            }
        }
        Record {
            at: Timestamp::from_micros(u64::try_from(micros).unwrap()),
            client_ip: Some(self.client_ip),
            method: Some(self.method.as_bytes()),
            uri: Some(self.uri.as_bytes()),
            user: self.user.as_deref().map(str::as_bytes),
            status: Some(self.status),
            bytes: Some(self.bytes),
            headers,
            ..Record::default()
        }
    }

    fn combined(&self, escaped: fn(&str) -> String) -> String {
        let at = jiff::Timestamp::from_microsecond(self.micros).unwrap();
        let zone = jiff::tz::Offset::from_seconds(self.zone_minutes * 60).unwrap();
        let time = at.to_zoned(zone.to_time_zone()).strftime("%d/%b/%Y:%H:%M:%S %z").to_string();
        let text = |text: &Option<String>| text.as_deref().map_or("-".to_owned(), escaped);
        let Self { client_ip, method, status, bytes, .. } = self;
        format!(
            "{client_ip} - {} [{time}] \"{method} {} HTTP/1.1\" {status} {bytes} \"{}\" \"{}\"",
            text(&self.user),
            escaped(&self.uri),
            text(&self.referer),
            text(&self.user_agent),
        )
    }
}

fn nginx(text: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | 0..32 | 127.. => format!("\\x{byte:02X}"),
        _ => char::from(byte).to_string(),
    };
    text.bytes().map(escaped).collect()
}

fn apache(text: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'"' => "\\\"".to_owned(),
        b'\\' => "\\\\".to_owned(),
        0..32 | 127.. => format!("\\x{byte:02x}"),
        _ => char::from(byte).to_string(),
    };
    text.bytes().map(escaped).collect()
}

/// Reads a line twice with the same memory, and compares it.
fn check(format: &str, head: &str, line: &str, expected: &Record<'_>) {
    let parser = LineParser::new(&format.parse().unwrap(), head.as_bytes()).unwrap();
    let mut scratch = Scratch::default();
    for _ in 0..2 {
        assert_eq!(
            parser.parse(line.as_bytes(), &mut scratch),
            Ok(Some(expected.clone())),
            "{line}"
        );
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn combined(original in originals()) {
        let second = original.micros - original.micros % 1_000_000;
        for escaped in [nginx, apache] {
            check("combined", "", &original.combined(escaped), &original.record(second));
        }
        let line = format!("h:1 {}", original.combined(nginx));
        let expected = Record { host: Some(b"h:1"), ..original.record(second) };
        check("vhost_combined", "", &line, &expected);
    }

    #[test]
    fn json(original in originals()) {
        let Original { client_ip, method, uri, user, status, bytes, millis, .. } = &original;
        let time = jiff::Timestamp::from_microsecond(original.micros).unwrap().to_string();
        let expected = Record {
            duration: Some(Span::from_millis(*millis)), ..original.record(original.micros)
        };
        let line = serde_json::json!({
            "t": time, "c": { "ip": client_ip, "u": user }, "r": { "m": method, "u": uri },
            "s": status, "b": bytes, "d": millis, "ref": original.referer, "ua": [original.user_agent],
        });
        let format = "json:time=t,client_ip=c.ip,user=c.u,method=r.m,uri=r.u,status=s,bytes=b,duration_ms=d,header.Referer=ref,header.User-Agent=ua";
        check(format, "", &line.to_string(), &expected);
        let pretty = serde_json::to_string_pretty(&line).unwrap().replace('\n', " ");
        check(format, "", &pretty, &expected);
    }

    #[test]
    fn columns(original in originals(), quotes_all in any::<bool>(), is_tsv in any::<bool>()) {
        let delimiter = if is_tsv { '\t' } else { ',' };
        let value = |text: &str| {
            let is_quoted = quotes_all || text.contains(delimiter) || text.starts_with('"');
            if is_quoted { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
        };
        let optional = |text: &Option<String>| value(text.as_deref().unwrap_or_default());
        let Original { client_ip, method, uri, user, status, bytes, millis, .. } = &original;
        let line = [
            value(&format!("{:.3}", original.micros as f64 / 1e3)), value(&client_ip.to_string()), value(method),
            value(uri), optional(user), value(&status.to_string()), value(&bytes.to_string()),
            value(&millis.to_string()), optional(&original.referer), optional(&original.user_agent),
        ].join(&delimiter.to_string());
        let head = "t,c,m,u,user,s,b,d,ref,ua".replace(',', &delimiter.to_string());
        let format = "time_ms=t,client_ip=c,method=m,uri=u,user=user,status=s,bytes=b,duration_ms=d,header.referer=ref,header.user-agent=ua";
        let format = format!("{}:{format}", if is_tsv { "tsv" } else { "csv" });
        let expected = Record {
            duration: Some(Span::from_millis(*millis)), ..original.record(original.micros)
        };
        check(&format, &head, &line, &expected);
    }

    #[test]
    fn times_of_any_offset(micros in 0..4_000_000_000_000_000_i64, minutes in -1439..1439_i32) {
        let at = jiff::Timestamp::from_microsecond(micros).unwrap();
        let zone = jiff::tz::Offset::from_seconds(minutes * 60).unwrap().to_time_zone();
        let zoned = at.to_zoned(zone);
        for format in ["%Y-%m-%dT%H:%M:%S%.6f%:z", "%Y-%m-%d %H:%M:%S%.6f%z"] {
            let line = zoned.strftime(format).to_string();
            let parser = LineParser::new(&"csv:time=1".parse().unwrap(), b"").unwrap();
            let mut scratch = Scratch::default();
            let record = parser.parse(line.as_bytes(), &mut scratch).unwrap().unwrap();
            prop_assert_eq!(record.at, Timestamp::from_micros(u64::try_from(micros).unwrap()));
        }
    }

    #[test]
    fn headers_of_any_number(values in vec("[a-z]{1,9}", 0..9)) {
        let names: Vec<String> = (0..values.len()).map(|number| format!("x-{number}")).collect();
        let members = names.iter().zip(&values).map(|(name, value)| format!("\"{}\":[\"{value}\"]", name.to_uppercase()));
        let line = format!("{{\"ts\":5,\"request\":{{\"uri\":\"/\",\"headers\":{{{}}}}}}}", members.collect::<Vec<_>>().join(","));
        let headers = names.iter().zip(&values).map(|(name, value)| (name.as_str(), value.as_bytes()));
        let at = Timestamp::from_micros(5_000_000);
        check("caddy", "", &line, &Record { at, uri: Some(b"/"), headers: headers.collect(), ..Record::default() });
    }
}
