//! AWS: Application Load Balancer and CloudFront.

use super::*;

const ALB: &str = r#"https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/a?b=c HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012" 1 2018-07-02T22:22:48.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_123456"#;

fn alb() -> Record<'static> {
    Record {
        at: at("2018-07-02T22:22:48.364Z"),
        client_ip: ip("192.168.131.39"),
        method: text("GET"),
        scheme: text("https"),
        host: text("www.example.com:443"),
        uri: text("/a?b=c"),
        status: Some(200),
        bytes: Some(57),
        duration: millis(171),
        headers: headers(&[
            ("user-agent", "curl/7.46.0"),
            ("x-amzn-trace-id", "Root=1-58337281-1d84f3d73c47ec4e58577259"),
        ]),
        ..Record::default()
    }
}

#[test]
fn load_balancer() {
    check("alb", "", ALB, &alb());
}

#[test]
fn load_balancer_without_a_target() {
    let line = r#"http 2018-11-30T22:23:00.186641Z app/lb/50 [2001:db8::7]:2817 - -1 -1 -1 502 - 34 366 "GET http://www.example.com:80/ HTTP/1.1" "-" - - - "Root=1-5" "-" "-" 0 2018-11-30T22:22:48.364000Z "forward" "-" "LambdaInvalidResponse" "-" "-" "-" "-""#;
    let expected = Record {
        at: at("2018-11-30T22:22:48.364Z"),
        client_ip: ip("2001:db8::7"),
        scheme: text("http"),
        host: text("www.example.com:80"),
        uri: text("/"),
        status: Some(502),
        bytes: Some(366),
        duration: None,
        headers: headers(&[("x-amzn-trace-id", "Root=1-5")]),
        ..alb()
    };
    check("alb", "", line, &expected);
    // Not HTTP at all.
    let line =
        line.replace("GET http://www.example.com:80/ HTTP/1.1", "- http://www.example.com:80- -");
    check("alb", "", &line, &Record { method: None, host: None, uri: None, ..expected });
}

#[test]
fn load_balancer_of_web_sockets_and_first_years() {
    let line = ALB.replace("https 2018", "wss 2018").replace("GET https:", "GET wss:");
    check("alb", "", &line, &alb());
    let line = ALB.split(" 1 2018-07-02T22:22:48").next().unwrap();
    check("alb", "", line, &Record { at: at("2018-07-02T22:23:00.186641Z"), ..alb() });
}

#[test]
fn malformed_lines_of_load_balancers() {
    let cases = [
        ("https 2018", "tls 2018", 1, "not `http`"),
        ("2018-07-02T22:23", "2018-07-32T22:23", 7, "no time"),
        ("0.048", "fast", 110, "the processing time"),
        ("\"GET", "GET", 135, "no request line"),
    ];
    for (part, by, column, reason) in cases {
        let error = error_of("alb", "", ALB.replace(part, by).as_bytes());
        assert!(error.reason.starts_with(reason) && error.column == column, "{error:?}");
    }
}

const FIELDS: &str = "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken x-forwarded-for ssl-protocol ssl-cipher x-edge-response-result-type cs-protocol-version fle-status fle-encrypted-fields c-port time-to-first-byte x-edge-detailed-result-type sc-content-type sc-content-len sc-range-start sc-range-end\n";
const CLOUDFRONT: &str = "2019-12-04\t21:02:31\tLAX1\t392\t192.0.2.100\tGET\td111111abcdef8.cloudfront.net\t/index.html\t200\t-\tMozilla/5.0%20(Windows%20NT%2010.0;%20Win64;%20x64)\t-\t-\tHit\tSOX4xwn4XV6Q4rgb7XiVGOHms_BGlTAC4KyHmureZmBNrjGdRLiNIQ==\tshop.example\thttps\t23\t0.001\t-\tTLSv1.2\tECDHE-RSA-AES128-GCM-SHA256\tHit\tHTTP/2.0\t-\t-\t11040\t0.001\tHit\ttext/html\t78\t-\t-";

fn cloudfront() -> Record<'static> {
    Record {
        at: at("2019-12-04T21:02:31Z"),
        client_ip: ip("192.0.2.100"),
        method: text("GET"),
        scheme: text("https"),
        host: text("shop.example"),
        uri: text("/index.html"),
        status: Some(200),
        bytes: Some(392),
        duration: millis(1),
        headers: headers(&[("user-agent", "Mozilla/5.0 (Windows NT 10.0; Win64; x64)")]),
        ..Record::default()
    }
}

#[test]
fn cdn() {
    check("cloudfront", FIELDS, CLOUDFRONT, &cloudfront());
    // The head of the file may be lost.
    check("cloudfront", "", CLOUDFRONT, &cloudfront());
}

#[test]
fn cdn_with_a_query_a_cookie_and_ipv6() {
    let line = CLOUDFRONT
        .replace("x64)\t-\t-\t", "x64)\ta=1&b=%2520\tid=7;%20b=2\t")
        .replace("192.0.2.100", "2001:db8:0:1::1")
        .replace("0.001\t-\tTLS", "0.001\t203.0.113.9\tTLS");
    let expected = Record {
        client_ip: ip("2001:db8:0:1::1"),
        uri: text("/index.html?a=1&b=%2520"),
        headers: headers(&[
            ("user-agent", "Mozilla/5.0 (Windows NT 10.0; Win64; x64)"),
            ("cookie", "id=7; b=2"),
            ("x-forwarded-for", "203.0.113.9"),
        ]),
        ..cloudfront()
    };
    check("cloudfront", FIELDS, &line, &expected);
}

#[test]
fn cdn_with_chosen_fields() {
    let expected = Record {
        at: at("2019-12-04T21:02:31Z"),
        client_ip: ip("192.0.2.1"),
        status: Some(403),
        ..Record::default()
    };
    let head = "#Version: 1.0\r\n#Fields: c-ip sc-status time date\r\n";
    check("cloudfront", head, "192.0.2.1\t403\t21:02:31\t2019-12-04", &expected);
}

#[test]
fn head_of_a_cdn_log_has_no_record_and_malformed_lines_have_a_column() {
    let parser = LineParser::new(&"cloudfront".parse().unwrap(), FIELDS.as_bytes()).unwrap();
    for line in FIELDS.lines() {
        assert_eq!(parser.parse(line.as_bytes(), &mut Scratch::default()), Ok(None));
    }
    let error = error_of("cloudfront", FIELDS, b"2019-12-04\t21:02:31\tLAX1");
    assert_eq!((error.column, error.reason), (25, "columns are missing at the end"));
    let line = CLOUDFRONT.replace("\t200\t", "\tabc\t");
    let error = error_of("cloudfront", FIELDS, line.as_bytes());
    assert_eq!(error.column, 88);
    let line = CLOUDFRONT.replace("21:02:31", "25:02:31");
    assert!(error_of("cloudfront", FIELDS, line.as_bytes()).reason.starts_with("no date"));
}
