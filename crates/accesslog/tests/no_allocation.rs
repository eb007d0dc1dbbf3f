//! Reading a line takes no memory once the buffer for unescaped texts has grown.
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.
#![allow(unsafe_code, reason = "an allocator that counts cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sluicegate_accesslog::{LineParser, Scratch};

struct Counting;

thread_local! {
    // Of this thread alone: the harness works beside the test.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is handed on to the system's allocator as it came; counting touches no memory
// of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of the second and third reading of a line.
fn taken(format: &str, head: &str, line: &str) -> u64 {
    let parser = LineParser::new(&format.parse().unwrap(), head.as_bytes()).unwrap();
    let mut scratch = Scratch::default();
    assert!(parser.parse(line.as_bytes(), &mut scratch).unwrap().is_some(), "{line}");
    let before = TAKEN.get();
    for _ in 0..2 {
        let record = parser.parse(line.as_bytes(), &mut scratch).unwrap().unwrap();
        assert!(record.at.as_micros() > 0);
    }
    TAKEN.get() - before
}

#[test]
fn a_line_takes_no_memory() {
    let combined = r#"192.0.2.7 - user [17/May/2015:10:05:03 +0000] "GET /\x22a HTTP/1.1" 200 2 "http://a/\"" "curl \x22 8" "10.0.0.1""#;
    let envoy = r#"[2016-04-15T20:17:00.310Z] "POST /api HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21" "locations" "tcp://10.0.2.1:80""#;
    let alb = r#"http 2018-07-02T22:23:00.186641Z app/lb/50 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET http://h:80/a HTTP/1.1" "curl" - - arn "Root=1-5" "h" "-" 1 2018-07-02T22:22:48.364000Z"#;
    let json = r#"{"ts":1646861401.5,"request":{"remote_ip":"::1","method":"GET","uri":"/","headers":{"A":["b"]}},"duration":0.5,"status":200}"#;
    let cloudfront = "2019-12-04\t21:02:31\t192.0.2.1\ta%20b";
    for (format, head, line) in [
        ("combined", "", combined),
        ("envoy", "", envoy),
        ("alb", "", alb),
        ("caddy", "", json),
        ("cloudfront", "#Fields: date time c-ip cs(User-Agent)", cloudfront),
        ("csv:time=t,user=u,hits=h", "t,u,h", "2023-11-16 18:15:46.6805900,\"a\"\"b\",374.0"),
    ] {
        assert_eq!(taken(format, head, line), 0, "{format}");
    }
}

#[test]
fn the_counter_counts() {
    // The fifth header does not fit into the record.
    let line =
        r#"{"ts":1,"request":{"uri":"/","headers":{"a":"1","b":"2","c":"3","d":"4","e":"5"}}}"#;
    assert!(taken("caddy", "", line) > 0);
}
