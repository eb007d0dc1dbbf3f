//! Commands are read as a reader that is too simple to be wrong reads them, however they are cut into pieces.

#[path = "resp_frames/same.rs"]
mod same;

use proptest::collection::vec;
use proptest::prelude::*;
use same::{End, in_pieces, naive, same};
use sluicegate_server::resp::frame::{CommandLimits, CommandReader, FrameError};

/// Small, so that they are met.
const MOST: CommandLimits =
    CommandLimits { args: 4, bulk_bytes: 12, command_bytes: 48, inline_bytes: 24 };

fn read(bytes: &[u8]) -> (Vec<Vec<String>>, End) {
    let (commands, end) = in_pieces(bytes, CommandLimits::default(), &[]);
    let text = |arg: Vec<u8>| String::from_utf8_lossy(&arg).into_owned();
    (commands.into_iter().map(|args| args.into_iter().map(text).collect()).collect(), end)
}

#[test]
fn both_forms_are_commands() {
    let (commands, end) =
        read(b"*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\nPING  hi \n\r\n*0\r\n*-1\r\nQUIT\r\n");
    assert_eq!(commands, [vec!["ECHO", "a\r\nb"], vec!["PING", "hi"], vec!["QUIT"]]);
    assert_eq!(end, End::More);
}

#[test]
fn words_may_be_in_quotes() {
    for (line, words) in [
        (r#"ECHO "a b""#, vec!["ECHO", "a b"]),
        (r#"ECHO 'a "b\' \n'"#, vec!["ECHO", r#"a "b' \n"#]),
        (r#"ECHO "\x41\"\n\r\t\b\a\q""#, vec!["ECHO", "A\"\n\r\t\u{8}\u{7}q"]),
        (r#"ECHO """#, vec!["ECHO", ""]),
        ("ECHO key=\"a b\"", vec!["ECHO", "key=a b"]),
    ] {
        assert_eq!(
            read(format!("{line}\r\n").as_bytes()),
            (vec![words.iter().map(|word| (*word).to_owned()).collect()], End::More)
        );
    }
    for line in [r#"ECHO "a"#, r#"ECHO "a"b"#, r#"ECHO 'a"#, r#"ECHO "a\"#] {
        assert_eq!(
            read(format!("{line}\n").as_bytes()).1,
            End::FrameError(FrameError::Quotes),
            "{line}"
        );
    }
}

#[test]
fn what_is_announced_is_not_believed() {
    let args: String = "*1025\r\n".to_owned();
    let large = format!("*2\r\n$4\r\nECHO\r\n${}\r\n", (64 << 10) + 1);
    for (bytes, broken) in [
        ("*1000000000\r\n", FrameError::Count),
        (args.as_str(), FrameError::Count),
        ("*99999999999999999999", FrameError::Count),
        ("*00000000000000000000", FrameError::Count),
        ("*\r\n", FrameError::Count),
        ("*-\r\n", FrameError::Count),
        ("*1 \r\n", FrameError::Count),
        ("*+1\r\n", FrameError::Count),
        ("*1\rX", FrameError::Count),
        ("*1\r\n$-5\r\n", FrameError::Length),
        ("*1\r\n$-1\r\n", FrameError::Length),
        ("*1\r\n$x\r\n", FrameError::Length),
        ("*1\r\n$99999999999999999999\r\n", FrameError::Length),
        (&large, FrameError::Length),
        ("*1\r\n*1\r\n$4\r\nPING\r\n", FrameError::ExpectedBulk(b'*')),
        ("*1\r\n:1\r\n", FrameError::ExpectedBulk(b':')),
        ("*1\r\n$4\r\nPINGPONG\r\n", FrameError::ExpectedCrlf),
    ] {
        assert_eq!(read(bytes.as_bytes()), (vec![], End::FrameError(broken)), "{bytes}");
    }
    let long = "a".repeat((64 << 10) + 1);
    assert_eq!(read(long.as_bytes()).1, End::FrameError(FrameError::Line));
    // Each of them may be there, all of them may not.
    let bulk = format!("$65536\r\n{}\r\n", "a".repeat(1 << 16));
    assert_eq!(
        read(format!("*17\r\n{}", bulk.repeat(16)).as_bytes()).1,
        End::FrameError(FrameError::Size)
    );
    assert_eq!(read(format!("*15\r\n{}", bulk.repeat(15)).as_bytes()).1, End::More);
}

#[test]
fn a_command_that_comes_byte_by_byte_is_read_once() {
    let bytes = format!("*2\r\n$4\r\nECHO\r\n$60000\r\n{}\r\n", "a".repeat(60_000)).into_bytes();
    let mut reader = CommandReader::new(CommandLimits::default());
    for end in 0..bytes.len() {
        assert_eq!(reader.read(&bytes[..end]), Ok(None));
    }
    assert_eq!(reader.read(&bytes), Ok(Some(bytes.len())));
    assert_eq!(reader.borrowed(1, &bytes).map(<[u8]>::len), Some(60_000));
}

/// What commands are made of, right and wrong.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![
        4 => (0i64..6).prop_map(|number| number.to_string()),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => "[-+]?[0-9]{0,22}",
    ];
    let bulk = "[ -~\r\n]{0,13}".prop_map(|text| format!("${}\r\n{text}\r\n", text.len()));
    let whole = vec("[a-z\"' \r]{0,8}", 0..5).prop_map(|args| {
        let bulks = args.iter().map(|arg| format!("${}\r\n{arg}\r\n", arg.len()));
        format!("*{}\r\n{}", args.len(), bulks.collect::<String>())
    });
    let piece = prop_oneof![
        6 => whole,
        2 => bulk,
        2 => (prop_oneof![Just('*'), Just('$')], number).prop_map(|(kind, number)| format!("{kind}{number}\r\n")),
        3 => r#"[ a-c"'\\xn0]{0,14}\r?\n"#,
        1 => "[*$:\r\n -~]{0,4}",
    ];
    vec(piece, 0..8).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn any_cut_gives_the_same_commands(bytes in pieces(), cuts in vec(0usize..64, 0..12)) {
        same(&bytes, MOST, &cuts);
    }

    #[test]
    fn anything_gives_the_same_commands(bytes in vec(any::<u8>(), 0..80), cuts in vec(0usize..80, 0..12)) {
        same(&bytes, MOST, &cuts);
    }

    #[test]
    fn what_is_written_is_read(args in vec(vec(any::<u8>(), 0..40), 1..20)) {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in &args {
            bytes.extend(format!("${}\r\n", arg.len()).into_bytes());
            bytes.extend(arg);
            bytes.extend(b"\r\n");
        }
        prop_assert_eq!(naive(&bytes, CommandLimits::default()), (vec![args.clone()], End::More));
        prop_assert_eq!(in_pieces(&bytes, CommandLimits::default(), &[]), (vec![args], End::More));
    }
}
