//! A reader of commands that has everything before it begins, and what both readers make of some bytes.

use sluicegate_server::resp::frame::{CommandLimits, CommandReader, FrameError};

/// Why there are no more commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// More is to come.
    More,
    /// The rest is none.
    FrameError(FrameError),
}

pub(crate) type Read = (Vec<Vec<Vec<u8>>>, End);

/// Both readers make the same of it, in any pieces.
pub(crate) fn same(bytes: &[u8], most: CommandLimits, cuts: &[usize]) {
    let whole = naive(bytes, most);
    assert_eq!(in_pieces(bytes, most, &[]), whole, "in one piece");
    assert_eq!(in_pieces(bytes, most, cuts), whole, "cut at {cuts:?}");
    let everywhere: Vec<usize> = (0..bytes.len()).collect();
    assert_eq!(in_pieces(bytes, most, &everywhere), whole, "byte by byte");
}

/// What the reader makes of bytes that come in pieces, cut at these places.
pub(crate) fn in_pieces(bytes: &[u8], most: CommandLimits, cuts: &[usize]) -> Read {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| (*cut).min(bytes.len())).collect();
    cuts.push(bytes.len());
    cuts.sort_unstable();
    let (mut reader, mut from, mut commands) = (CommandReader::new(most), 0, Vec::new());
    for to in cuts {
        loop {
            let came = &bytes[from..to];
            match reader.read(came) {
                Ok(None) => break,
                Err(broken) => return (commands, End::FrameError(broken)),
                Ok(Some(length)) => {
                    assert!(0 < length && length <= came.len());
                    let args: Vec<Vec<u8>> =
                        reader.args(came).iter().map(<[u8]>::to_owned).collect();
                    assert_eq!(args.len(), reader.args(came).len());
                    for (place, arg) in args.iter().enumerate() {
                        let borrowed = reader.borrowed(place, came);
                        assert_eq!(borrowed, reader.borrows().then_some(arg.as_slice()));
                    }
                    if !args.is_empty() {
                        commands.push(args);
                    }
                    from += length;
                }
            }
        }
    }
    (commands, End::More)
}

/// What there is to read in all of it, looked at from the beginning for each command.
pub(crate) fn naive(bytes: &[u8], most: CommandLimits) -> Read {
    let (mut rest, mut commands) = (bytes, Vec::new());
    loop {
        match next(rest, most) {
            Ok(None) => return (commands, End::More),
            Err(broken) => return (commands, End::FrameError(broken)),
            Ok(Some((args, behind))) => {
                if !args.is_empty() {
                    commands.push(args);
                }
                rest = behind;
            }
        }
    }
}

type Found<'a, T> = Result<Option<(T, &'a [u8])>, FrameError>;

fn next(bytes: &[u8], most: CommandLimits) -> Found<'_, Vec<Vec<u8>>> {
    let Some(first) = bytes.first() else { return Ok(None) };
    if *first != b'*' {
        return line(bytes, most);
    }
    let Some((count, mut rest)) = number(&bytes[1..], FrameError::Count)? else { return Ok(None) };
    if count > most.args as i64 {
        return Err(FrameError::Count);
    }
    let mut args = Vec::new();
    for _ in 0..count {
        match rest.first() {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => return Err(FrameError::ExpectedBulk(*other)),
        }
        let Some((length, text)) = number(&rest[1..], FrameError::Length)? else { return Ok(None) };
        if length < 0 || length > most.bulk_bytes as i64 {
            return Err(FrameError::Length);
        }
        let length = length as usize;
        if bytes.len() - text.len() + length + 2 > most.command_bytes {
            return Err(FrameError::Size);
        }
        if text.len() < length + 2 {
            return Ok(None);
        }
        if &text[length..length + 2] != b"\r\n" {
            return Err(FrameError::ExpectedCrlf);
        }
        args.push(text[..length].to_owned());
        rest = &text[length + 2..];
    }
    Ok(Some((args, rest)))
}

/// Up to nineteen digits, perhaps with a minus before them, and the end of a line.
fn number(bytes: &[u8], broken: FrameError) -> Found<'_, i64> {
    let end = bytes.iter().position(|byte| *byte == b'\r');
    let text = &bytes[..end.unwrap_or(bytes.len())];
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    if digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(broken);
    }
    let is_empty = digits.is_empty();
    let digits = format!("0{}", String::from_utf8_lossy(digits));
    let number: i64 = digits.parse().map_err(|_| broken)?;
    match end.map(|end| &bytes[end + 1..]) {
        Some(_) if is_empty => Err(broken),
        Some([b'\n', rest @ ..]) => Ok(Some((sign * number, rest))),
        Some([_, ..]) => Err(broken),
        Some([]) | None => Ok(None),
    }
}

fn line(bytes: &[u8], most: CommandLimits) -> Found<'_, Vec<Vec<u8>>> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    if end.unwrap_or(bytes.len()) > most.inline_bytes {
        return Err(FrameError::Line);
    }
    let Some(end) = end else { return Ok(None) };
    let mut line: Vec<u8> = bytes[..end].to_owned();
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(Some((words(&line, most.args)?, &bytes[end + 1..])))
}

/// One character after the other, with a note of what is open.
fn words(line: &[u8], most: usize) -> Result<Vec<Vec<u8>>, FrameError> {
    let (mut words, mut word, mut open) = (Vec::new(), None::<Vec<u8>>, None);
    let mut at = 0;
    while at < line.len() {
        let byte = line[at];
        at += 1;
        if word.is_none() && words.len() == most && !byte.is_ascii_whitespace() {
            return Err(FrameError::Count);
        }
        match open {
            Some(mark) if byte == mark => {
                open = None;
                if line.get(at).is_some_and(|next| !next.is_ascii_whitespace()) {
                    return Err(FrameError::Quotes);
                }
            }
            Some(b'"') if byte == b'\\' => {
                let hex =
                    line.get(at + 1..at + 3).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
                let escaped = match (line.get(at), hex) {
                    (None, _) => return Err(FrameError::Quotes),
                    (Some(b'x'), Some(hex)) => {
                        at += 2;
                        u8::from_str_radix(&String::from_utf8_lossy(hex), 16).unwrap_or(0)
                    }
                    (Some(other), _) => match b"nrtba".iter().position(|known| known == other) {
                        Some(place) => b"\n\r\t\x08\x07"[place],
                        None => *other,
                    },
                };
                at += 1;
                word.get_or_insert_default().push(escaped);
            }
            Some(b'\'') if byte == b'\\' && line.get(at) == Some(&b'\'') => {
                at += 1;
                word.get_or_insert_default().push(b'\'');
            }
            Some(_) => word.get_or_insert_default().push(byte),
            None if byte == b'"' || byte == b'\'' => {
                open = Some(byte);
                word.get_or_insert_default();
            }
            None if byte.is_ascii_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    if open.is_some() { Err(FrameError::Quotes) } else { Ok(words) }
}
