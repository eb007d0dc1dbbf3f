//! Any bytes are read without a panic; a record that is written as a line is read as it was.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod same;
mod written;

use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::sample::{Index, select};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed};

/// So many cases, the same ones every time; `PROPTEST_CASES` runs more, with a new seed each time.
pub(crate) fn cases(at_least: u32) -> Config {
    let more = std::env::var("PROPTEST_CASES").ok().and_then(|count| count.parse().ok());
    Config {
        cases: more.map_or(at_least, |more: u32| more.max(at_least)),
        failure_persistence: None,
        rng_seed: if more.is_none() { RngSeed::Fixed(3) } else { RngSeed::Random },
        ..Config::default()
    }
}

const LINES: [&str; 10] = [
    r#"192.0.2.7 - joe [17/May/2015:10:05:03 +0000] "GET /a?b=\x22 HTTP/1.1" 200 2 "http://a/" "curl \"8\"" "10.0.0.1, ::1""#,
    r#"h:80 ::1 - - [17/May/2015:10:05:03 -0730] "-" 408 - "-" "-""#,
    r#"[2016-04-15T20:17:00.310Z] "POST /api HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21" "locations" "tcp://10.0.2.1:80""#,
    r#"[2020-11-25T21:26:18.409Z] "GET /s HTTP/1.1" 418 - via - "-" 0 135 4 3 "-" "curl" "84" "httpbin:8000" "10.44.1.27:80" o 10.44.1.23:37652 10.0.45.184:8000 10.44.1.23:46520 - default"#,
    r#"http 2018-07-02T22:23:00.186641Z app/lb/50 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET http://h:80/a HTTP/1.1" "curl" - - arn "Root=1-5" "h" "-" 1 2018-07-02T22:22:48.364000Z"#,
    r#"{"start_time":"2024-05-06T07:08:09.123Z","method":"GET","path":"/","response_code":200,"duration":3,"x_forwarded_for":"1.2.3.4"}"#,
    r#"{"ts":1646861401.5241024,"request":{"remote_ip":"127.0.0.1","client_ip":null,"method":"GET","host":"h","uri":"/","headers":{"User-Agent":["c\u00fcrl"]},"tls":{}},"duration":"1.5ms","status":200}"#,
    r#"{"time":"2023-11-14T22:13:20.123Z","client":"192.0.2.7","method":"GET","path":"/a\"b","status":429,"duration_ms":1.5,"cost":7}"#,
    "2019-12-04\t21:02:31\tLAX1\t392\t192.0.2.100\tGET\td1\t/index.html\t200\t-\tM%20O\ta=b\t-\tHit\tSO\tshop\thttps\t23\t0.001\t-\tT\tE\tHit\tHTTP/2.0\t-\t-\t11040",
    r#"1700000000123,192.0.2.7,"a ""b""",3.0,"GET / HTTP/1.1",1.5ms,https://h/p?q,x=y,200,12,2019-12-04,21:02:31"#,
];

/// A line, or a part of one, with some bytes replaced, removed or doubled, also by bytes that have
/// a meaning.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let byte = select(b"\"\\[]{}:,.- \t\n\r0129x\x00\xFF\xC3\x1F".to_vec());
    let change = (any::<Index>(), 0..4_u8, byte);
    (select(&LINES[..]), vec(change, 0..6)).prop_map(|(line, changes)| {
        let mut line = line.as_bytes().to_vec();
        for (index, kind, byte) in changes {
            if line.is_empty() {
                break;
            }
            let index = index.index(line.len());
            match kind {
                0 => line[index] = byte,
                1 => line.insert(index, byte),
                2 => _ = line.remove(index),
                _ => line.truncate(index + 1),
            }
        }
        line
    })
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..300)) {
        same::same(&bytes);
    }

    #[test]
    fn mutated_lines(lines in vec(mutated(), 1..4)) {
        same::same(&lines.join(&b'\n'));
    }
}

#[test]
fn the_lines_themselves() {
    same::same(LINES.join("\n").as_bytes());
}
