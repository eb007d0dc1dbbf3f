//! What holds for any bytes; the fuzz target checks the same.

use std::sync::LazyLock;

use sluicegate_accesslog::{
    Block, BlockReader, Format, Input, LineError, LineParser, Record, Scratch, detect,
};

/// The head of a log with a header; mapped columns of all kinds.
const HEAD: &[u8] = b"time,ip,user,hits,request,duration,url,query,status,bytes,date,clock";
const MAPPED: &str = "time=time,client_ip=ip,user=user,hits=hits,request=request,duration_ms=duration,\
    url=url,query=query,status=status,bytes=bytes,date=date,time_of_day=clock,header.x-user=user";

/// Blocks of an input that are read: decompressed, an input of any size may have any number.
const BLOCKS_MAX: usize = 8;

static PARSERS: LazyLock<Vec<LineParser>> = LazyLock::new(|| {
    let mapped = ["csv", "tsv", "json"].map(|syntax| format!("{syntax}:{MAPPED}"));
    let numbers = "csv:time_ns=1,time_of_day=2,date=3,path=4,query=5,hits=6".to_owned();
    let known = [
        "combined",
        "vhost_combined",
        "envoy",
        "alb",
        "envoy-json",
        "caddy",
        "gateway",
        "cloudfront",
    ];
    let formats = known.map(str::to_owned).into_iter().chain(mapped).chain([numbers]);
    let head = |format: &Format| match format {
        Format::Tsv(_) => HEAD.iter().map(|b| if *b == b',' { b'\t' } else { *b }).collect(),
        _ => HEAD.to_vec(),
    };
    let parser = |format: String| {
        let format: Format = format.parse().expect("a format");
        assert_eq!(
            format.to_string().parse(),
            Ok(format.clone()),
            "a format is written as it is read"
        );
        LineParser::new(&format, &head(&format)).expect("the header has the columns")
    };
    formats.map(parser).collect()
});

/// Reads bytes as a log of every format.
pub(crate) fn same(bytes: &[u8]) {
    if let Err(error) = detect(bytes) {
        let message = error.to_string();
        assert!(!message.is_empty() && !message.contains('\n'), "{message}");
    }
    let Ok(input) = Input::new(std::io::Cursor::new(bytes.to_vec())) else { return };
    let mut reader = BlockReader::new(input).block_bytes(0);
    let mut block = Block::default();
    let mut scratches: Vec<Scratch> = PARSERS.iter().map(|_| Scratch::default()).collect();
    for _ in 0..BLOCKS_MAX {
        // An error of the compression.
        let Ok(true) = reader.next_block(&mut block) else { return };
        for line in block.lines() {
            for (parser, scratch) in PARSERS.iter().zip(&mut scratches) {
                check_line(parser, line, scratch);
            }
        }
    }
}

/// The lines before do not matter, and a record is well-formed.
fn check_line(parser: &LineParser, line: &[u8], scratch: &mut Scratch) {
    let mut fresh = Scratch::default();
    let expected = parser.parse(line, &mut fresh);
    assert_eq!(parser.parse(line, scratch), expected, "{:?}", String::from_utf8_lossy(line));
    match expected {
        Ok(None) => {}
        Ok(Some(record)) => check_record(&record),
        Err(LineError { column, reason }) => {
            assert!((1..=line.len() + 1).contains(&column), "column {column} of {}", line.len());
            assert!(!reason.is_empty());
        }
    }
}

fn check_record(record: &Record<'_>) {
    let texts = [record.method, record.scheme, record.host, record.uri, record.user];
    assert!(texts.iter().flatten().all(|text| !text.is_empty() && *text != b"-"), "{record:?}");
    assert!(record.status.is_none_or(|status| (1..1_000).contains(&status)), "{record:?}");
    for (name, value) in record.headers.iter() {
        assert_eq!(*name, name.to_ascii_lowercase());
        assert!(!value.is_empty());
        assert!(record.header(name).is_some());
    }
}
