//! JSON: Envoy, Caddy, the gateway, and mapped members.

use super::*;

#[test]
fn envoy() {
    let line = r#"{"start_time":"2024-05-06T07:08:09.123Z","method":"GET","path":"/api?x=1","protocol":"HTTP/2",":authority":"api.example","response_code":429,"response_flags":"RL","bytes_received":0,"bytes_sent":18,"duration":3,"x_forwarded_for":"203.0.113.9","user_agent":"curl/8","request_id":"cc21","downstream_remote_address":"10.0.0.9:51234","downstream_local_address":"10.0.0.1:80","upstream_host":null}"#;
    let expected = Record {
        at: at("2024-05-06T07:08:09.123Z"),
        client_ip: ip("10.0.0.9"),
        method: text("GET"),
        host: text("api.example"),
        uri: text("/api?x=1"),
        status: Some(429),
        bytes: Some(18),
        duration: millis(3),
        headers: headers(&[
            ("x-forwarded-for", "203.0.113.9"),
            ("user-agent", "curl/8"),
            ("x-request-id", "cc21"),
        ]),
        ..Record::default()
    };
    check("envoy-json", "", line, &expected);
    // Texts for numbers, as older versions; without the address of the connection.
    let line = line
        .replace("429", "\"429\"")
        .replace(":18,", ":\"18\",")
        .replace("\"duration\":3", "\"duration\":\"3\"")
        .replace("\"10.0.0.9:51234\"", "null");
    check("envoy-json", "", &line, &Record { client_ip: ip("203.0.113.9"), ..expected });
}

#[test]
fn istio() {
    let line = r#"{"authority":"httpbin:8000","bytes_received":0,"bytes_sent":135,"connection_termination_details":null,"downstream_remote_address":"[2001:db8::1]:46520","duration":4,"method":"GET","path":"/status/418","protocol":"HTTP/1.1","request_id":"84","requested_server_name":null,"response_code":418,"start_time":"2020-11-25T21:26:18.409Z","user_agent":"curl \"7\"","x_forwarded_for":null}"#;
    let expected = Record {
        at: at("2020-11-25T21:26:18.409Z"),
        client_ip: ip("2001:db8::1"),
        method: text("GET"),
        host: text("httpbin:8000"),
        uri: text("/status/418"),
        status: Some(418),
        bytes: Some(135),
        duration: millis(4),
        headers: headers(&[("x-request-id", "84"), ("user-agent", "curl \"7\"")]),
        ..Record::default()
    };
    check("envoy-json", "", line, &expected);
}

const CADDY: &str = r#"{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"203.0.113.4","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a?b=c","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*","text/html"],"X-User":["caf\u00e9"],"Cookie":[]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"example.com"}},"bytes_read":0,"user_id":"alice","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}"#;

fn caddy() -> Record<'static> {
    Record {
        at: at("2022-03-09T21:30:01.524102Z"),
        client_ip: ip("203.0.113.4"),
        method: text("GET"),
        scheme: text("https"),
        host: text("localhost"),
        uri: text("/a?b=c"),
        user: text("alice"),
        status: Some(200),
        bytes: Some(10_900),
        duration: Some(Span::from_micros(930)),
        headers: headers(&[("user-agent", "curl/7.82.0"), ("accept", "*/*"), ("x-user", "café")]),
        ..Record::default()
    }
}

#[test]
fn caddy_with_all_headers() {
    check("caddy", "", CADDY, &caddy());
}

#[test]
fn caddy_of_other_versions_and_settings() {
    // Before 2.5; time and duration as texts; without TLS.
    let line = r#"{"ts":"2022-03-09T21:30:01.524Z","request":{"remote_addr":"[::1]:41342","proto":"HTTP/1.1","method":"POST","host":"h:80","uri":"/","headers":{}},"user_id":"","duration":"1.5ms","size":0,"status":0}"#;
    let expected = Record {
        at: at("2022-03-09T21:30:01.524Z"),
        client_ip: ip("::1"),
        method: text("POST"),
        host: text("h:80"),
        uri: text("/"),
        bytes: Some(0),
        duration: Some(Span::from_micros(1500)),
        ..Record::default()
    };
    check("caddy", "", line, &expected);
    let error = error_of("caddy", "", br#"{"level":"info","ts":1646861401.5,"msg":"serving"}"#);
    assert_eq!(error.reason, "no request");
}

#[test]
fn gateway() {
    let line = r#"{"time":"2023-11-14T22:13:20.123Z","client":"192.0.2.7","method":"GET","host":"shop.example","path":"/a\"b\n","protocol":"HTTP/1.1","status":429,"bytes":12,"duration_ms":1.5,"route":"api","verdict":"denied","rule":"shop/per_user","wait_ms":2000.0,"cost":7,"settled":{"user":0,"tokens":25},"request_id":"r1","referer":"https://a.example/","user_agent":"curl/8"}"#;
    let expected = Record {
        at: at("2023-11-14T22:13:20.123Z"),
        client_ip: ip("192.0.2.7"),
        method: text("GET"),
        host: text("shop.example"),
        uri: text("/a\"b\n"),
        status: Some(429),
        bytes: Some(12),
        duration: Some(Span::from_micros(1500)),
        hits: Some(7),
        headers: headers(&[
            ("x-request-id", "r1"),
            ("referer", "https://a.example/"),
            ("user-agent", "curl/8"),
        ]),
        ..Record::default()
    };
    check("gateway", "", line, &expected);
}

#[test]
fn mapped_members_of_any_depth() {
    let format = "json:time_ms=@ts,client_ip=net.client.ip,header.X-Tenant=tenant.id,hits=usage.in,hits=usage.out,url=req.url,user=http.user.name";
    let expected = Record {
        at: at("2023-11-14T22:13:20.123Z"),
        client_ip: ip("192.0.2.7"),
        scheme: text("https"),
        host: text("h:8443"),
        uri: text("/p?q"),
        user: text("4711"),
        hits: Some(33),
        headers: headers(&[("x-tenant", "t-1")]),
        ..Record::default()
    };
    // A dot is a level or part of a name.
    let line = r#"{"@ts":1700000000123,"net":{"client":{"ip":"192.0.2.7","port":1},"client.ip":null},"tenant.id":"t-1","usage":{"in":30,"out":3.0,"x":[1,{"in":5}]},"req":{"url":"https://h:8443/p?q"},"http.user":{"name":4711}}"#;
    check(format, "", line, &expected);
}

#[test]
fn malformed_lines() {
    let cases: [(&[u8], &str); 12] = [
        (b"{", "the JSON object is incomplete"),
        (b"[1]", "not a JSON object"),
        (b"7", "not a JSON object"),
        (b"{\"time\":1}}", "not valid JSON"),
        (b"{\"time\":1,}", "not valid JSON"),
        (b"{}", "no time"),
        (b"{\"time\":null}", "no time"),
        (b"{\"time\":\"soon\"}", "the time is neither RFC 3339 nor a number since 1970"),
        (b"{\"time\":-5}", "the time is neither RFC 3339 nor a number since 1970"),
        (b"{\"time\":1,\"hits\":1.5}", "the cost is not a whole number"),
        (b"{\"time\":1,\"client_ip\":7}", "the address of the client is not an IP address"),
        (b"{\"time\":1,\"user\":\"\xFF\"}", "not valid JSON"),
    ];
    for (line, reason) in cases {
        let error = error_of("json:time=time,hits=hits,client_ip=client_ip,user=user", "", line);
        assert_eq!(error.reason, reason, "{}", String::from_utf8_lossy(line));
        assert!((1..=line.len() + 1).contains(&error.column), "{error:?}");
    }
    let error = error_of("json:time=time,hits=hits", "", br#"{"a": 1, "hits": "x"}"#);
    assert_eq!(error.column, 20, "{error:?}");
    // A line nested without end.
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    error_of("json:time=time", "", deep.as_bytes());
    let deep = format!("{}1", "{\"a\":".repeat(50_000));
    error_of("json:time=a.a", "", deep.as_bytes());
}
