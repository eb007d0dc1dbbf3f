//! CSV and TSV by mapping.

use super::*;

#[test]
fn columns_by_name() {
    let expected =
        Record { at: at("2023-11-16T18:15:46.68059Z"), hits: Some(374), ..Record::default() };
    let (head, line) =
        ("TIMESTAMP,ContextTokens,GeneratedTokens\r\n", "2023-11-16 18:15:46.6805900,374,44");
    check("csv:time=TIMESTAMP,hits=ContextTokens", head, line, &expected);
    check("csv:hits=contexttokens,time=timestamp", &format!("\u{FEFF}{head}"), line, &expected);
    let both = "csv:time=TIMESTAMP,hits=ContextTokens,hits=GeneratedTokens";
    check(both, head, line, &Record { hits: Some(418), ..expected });
}

#[test]
fn columns_by_number() {
    let expected =
        Record { at: at("1970-01-02T15:50:00Z"), user: text("m-small-0"), ..Record::default() };
    check("csv:user=1,time_s=2", "", "m-small-0,143400,0.0766667,1.15623,Gamma", &expected);
}

#[test]
fn quotes_tabs_and_absent_values() {
    let head = "when,\"the \"\"ip\"\"\",request,user,status,bytes,duration,host,query\n";
    let format = "csv:time=when,client_ip=the \"ip\",request=request,user=user,status=status,bytes=bytes,duration_ms=duration,header.X-Tenant=host,host=host";
    let expected = Record {
        at: at("2023-11-14T22:13:20Z"),
        client_ip: ip("2001:db8::7"),
        method: text("GET"),
        uri: text("/a,b"),
        user: text("O\"Neil, \"\""),
        status: Some(200),
        bytes: Some(12),
        duration: millis(2),
        host: text("h"),
        headers: headers(&[("x-tenant", "h")]),
        ..Record::default()
    };
    let line = r#""1700000000",2001:db8::7,"GET /a,b HTTP/1.1","O""Neil, """"",200.0,12,"2",h,"#;
    check(format, head, line, &expected);
    let absent = Record { at: expected.at, ..Record::default() };
    check(format, head, r#"1700000000,-,-,"",,-,,,"#, &absent);
    let tabs = |text: &str| text.replace(',', "\t");
    check(
        "tsv:time=when,user=user,query=q,path=p",
        &tabs("when,user,p,q\n"),
        &tabs("1700000000,a b,/p,?x=1"),
        &Record { user: text("a b"), uri: text("/p?x=1"), ..absent },
    );
}

#[test]
fn urls() {
    let expected = Record { at: at("1970-01-01T00:00:07Z"), ..Record::default() };
    for (url, scheme, host, uri) in [
        ("https://h:8443/p?q", text("https"), text("h:8443"), "/p?q"),
        ("wss://h", text("https"), text("h"), "/"),
        ("http://h?x", text("http"), text("h"), "?x"),
        // Not absolute, or without a host.
        ("/p?u=http://h/", None, None, "/p?u=http://h/"),
        ("https:///p", None, None, "https:///p"),
        ("://h/p", None, None, "://h/p"),
        ("mailto:a", None, None, "mailto:a"),
    ] {
        let expected = Record { scheme, host, uri: text(uri), ..expected.clone() };
        check("csv:time=1,url=2", "", &format!("7,{url}"), &expected);
    }
}

#[test]
fn the_header_is_no_record_wherever_it_stands() {
    let head = "time,user\n";
    let parser =
        LineParser::new(&"csv:time=time,user=user".parse().unwrap(), head.as_bytes()).unwrap();
    let mut scratch = Scratch::default();
    assert_eq!(parser.parse(b"time,user", &mut scratch), Ok(None));
    assert_eq!(parser.parse(b"", &mut scratch), Ok(None));
    assert!(parser.parse(b"5,user", &mut scratch).unwrap().is_some());
    assert!(parser.parse(b"time,x", &mut scratch).is_err());
}

#[test]
fn malformed_lines() {
    let head = "a,time,hits\n";
    let cases = [
        ("x", 2, "columns are missing at the end"),
        ("x,1", 4, "columns are missing at the end"),
        ("x,soon,1", 3, "the time is neither RFC 3339 nor a number since 1970"),
        ("x,1,many", 5, "the cost is not a whole number"),
        ("x,1,-3", 5, "the cost is not a whole number"),
        ("x,,3", 1, "no time"),
        ("\"x,1,3", 7, "the closing quote is missing"),
        ("\"x\"y,1,3", 4, "no delimiter behind the closing quote"),
    ];
    for (line, column, reason) in cases {
        let error = error_of("csv:time=time,hits=hits", head, line.as_bytes());
        assert_eq!((error.column, error.reason), (column, reason), "{line}");
    }
}

#[test]
fn mistakes_in_formats_have_a_remedy() {
    let cases = [
        ("ngnix", "no format `ngnix`; use `combined`"),
        ("csv", "`csv` has columns of any meaning; name the columns, such as `csv:time=TIMESTAMP"),
        ("csv:", "no column has the time; map one, such as `time=TIMESTAMP`"),
        ("csv:time", "`time` is not a mapping of a column; write `FIELD=COLUMN`"),
        ("json:tme=ts", "no field `tme`; use `time`, `time_s`"),
        ("json:time=", "no column behind `time=`; name one"),
        ("json:time=ts,header.=x", "no field `header.`"),
        ("json:time=ts,header.a b=x", "no field `header.a b`"),
    ];
    for (format, message) in cases {
        let error = format.parse::<sluicegate_accesslog::Format>().unwrap_err().to_string();
        assert!(error.starts_with(message), "{format}: {error}");
    }
    let many: Vec<String> = (1..=65).map(|column| format!("time={column}")).collect();
    let error = format!("csv:{}", many.join(",")).parse::<sluicegate_accesslog::Format>();
    assert_eq!(error.unwrap_err().to_string(), "`65` columns are mapped; map at most 64");
    let error = |format: &str, head: &str| {
        LineParser::new(&format.parse().unwrap(), head.as_bytes()).unwrap_err().to_string()
    };
    assert_eq!(
        error("csv:time=when", "ts,ip\n1,2\n"),
        "no column `when` in the header; use one of `ts`, `ip`, or numbers, such as `time=1`, if the log has no header"
    );
    let message = error("csv:time=when", "");
    assert!(message.starts_with("no header line with a column `when`"), "{message}");
}
