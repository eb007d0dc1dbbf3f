//! The access log: a line for each request, as JSON or in the combined format.
//!
//! A thread writes, and a request never waits for it: lines that do not fit into its queue are
//! dropped and counted. Queries and the values that identify clients are not logged: they may be
//! secrets.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use http::{Method, Version};
use serde::{Serialize, Serializer};
use sluicegate_config::gateway::{AccessLogConfig, AccessLogFormat};
use tracing::error;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

use crate::metrics::RequestVerdict;
use crate::settle::SettledCosts;
use crate::tokens::TokenUsage;

/// Lines that wait to be written.
const QUEUE_LINES_MAX: usize = 16_384;
/// Bytes of a text that a client chooses.
const TEXT_BYTES_MAX: usize = 2_048;

/// The access log. Clones share the writer.
#[derive(Debug, Clone)]
pub(crate) struct AccessLog {
    shared: Arc<SharedLog>,
}

#[derive(Debug)]
struct SharedLog {
    config: AccessLogConfig,
    writer: NonBlocking,
    /// Whether the file is to be opened again before the next line.
    reopen: Arc<AtomicBool>,
    /// Dropped at the end, it writes the last lines.
    _guard: WorkerGuard,
}

/// A file that is opened again on request.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: BufWriter<File>,
    reopen: Arc<AtomicBool>,
}

/// What is logged of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogEntry {
    pub(crate) client: Option<IpAddr>,
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) referer: Option<String>,
    pub(crate) user_agent: Option<String>,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    pub(crate) duration: Duration,
    pub(crate) upstream: Option<String>,
    /// The server that answered, or failed last.
    pub(crate) server: Option<String>,
    /// Time from the request to the head of the upstream's response.
    pub(crate) upstream_time: Option<Duration>,
    pub(crate) route: String,
    /// The rule that denies, or would.
    pub(crate) rule: Option<String>,
    pub(crate) verdict: RequestVerdict,
    /// Time that a denied client has to wait.
    pub(crate) wait: Option<Duration>,
    /// Time that it has waited for its turn.
    pub(crate) delay: Option<Duration>,
    pub(crate) cost: Option<u64>,
    /// By descriptor.
    pub(crate) settled: SettledCosts,
    /// Of a request to a model.
    pub(crate) usage: Option<TokenUsage>,
    /// Keys of the descriptors.
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) request_id: Option<String>,
    pub(crate) trace_id: Option<String>,
    pub(crate) error: Option<&'static str>,
}

/// A line of the JSON format.
#[derive(Serialize)]
struct JsonLine<'a> {
    time: &'a str,
    client: Option<IpAddr>,
    method: &'a str,
    host: &'a str,
    path: &'a str,
    protocol: &'a str,
    status: u16,
    bytes: u64,
    duration_ms: f64,
    route: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_ms: Option<f64>,
    verdict: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    #[serde(serialize_with = "as_map", skip_serializing_if = "<[_]>::is_empty")]
    settled: &'a [(Arc<str>, u64)],
    #[serde(flatten)]
    usage: Option<UsageFields<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    referer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<&'a str>,
}

/// Fields of a request to a model.
#[derive(Serialize)]
struct UsageFields<'a> {
    model: &'a str,
    input_tokens: u64,
    output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    money: Option<u64>,
    tokens_from: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream_ended: bool,
}

impl<'a> From<&'a TokenUsage> for UsageFields<'a> {
    fn from(usage: &'a TokenUsage) -> Self {
        let (tokens, money) = (&usage.tokens, usage.money);
        Self {
            model: &usage.model,
            input_tokens: tokens.total_input(),
            output_tokens: tokens.output,
            money,
            tokens_from: usage.report.name(),
            stream_ended: usage.is_ended,
        }
    }
}

impl AccessLog {
    /// Opens the log.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(crate) fn open(config: &AccessLogConfig) -> Result<Self, String> {
        let reopen = Arc::new(AtomicBool::new(false));
        let builder = NonBlockingBuilder::default()
            .buffered_lines_limit(QUEUE_LINES_MAX)
            .lossy(true)
            .thread_name("access-log");
        let (writer, guard) = match &config.path {
            None => builder.finish(io::stdout()),
            Some(path) => {
                let file = append(path)
                    .map_err(|error| format!("access_log: {}", cannot_open(path, &error)))?;
                builder.finish(LogFile { path: path.clone(), file, reopen: reopen.clone() })
            }
        };
        let shared = SharedLog { config: config.clone(), writer, reopen, _guard: guard };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether this is the log of a configuration.
    pub(crate) fn is_of(&self, config: &AccessLogConfig) -> bool {
        self.shared.config == *config
    }

    /// Opens the file again before the next line, after a rotation.
    pub(crate) fn reopen(&self) {
        self.shared.reopen.store(true, Relaxed);
    }

    /// Lines that were dropped.
    pub(crate) fn dropped(&self) -> usize {
        self.shared.writer.error_counter().dropped_lines()
    }

    /// Writes a line, without waiting.
    pub(crate) fn write(&self, entry: &LogEntry, at: SystemTime) {
        let line = match self.shared.config.format {
            AccessLogFormat::Json => entry.json(at),
            AccessLogFormat::Combined => entry.combined(at),
        };
        // A dropped line is counted.
        let _ = self.shared.writer.clone().write_all(line.as_bytes());
    }
}

fn append(path: &Path) -> io::Result<BufWriter<File>> {
    OpenOptions::new().create(true).append(true).open(path).map(BufWriter::new)
}

/// The file of a log that cannot be opened, with the reason. Nothing is created, so a directory
/// that may not be written to is found by the start only.
pub(crate) fn unusable_file(config: &AccessLogConfig) -> Option<(PathBuf, String)> {
    let path = config.path.as_ref()?;
    let usable = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(metadata) if metadata.is_file() => append(path).map(drop),
        // To open a pipe is to wait for its reader.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            fs::metadata(folder.unwrap_or(Path::new("."))).and_then(|folder| {
                match folder.is_dir() {
                    true => Ok(()),
                    false => Err(io::ErrorKind::NotADirectory.into()),
                }
            })
        }
        Err(error) => Err(error),
    };
    usable.err().map(|error| (path.clone(), cannot_open(path, &error)))
}

fn cannot_open(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    format!(
        "cannot open `{path}`: {error}; name a file in a directory that exists and can be written to"
    )
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.reopen.swap(false, Relaxed) {
            let _ = self.file.flush();
            match append(&self.path) {
                Ok(file) => self.file = file,
                Err(error) => {
                    let path = self.path.display();
                    error!(%path, %error, "access log not opened again; the old file is used");
                }
            }
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A text of a client, bounded.
pub(crate) fn bounded(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

impl LogEntry {
    fn json(&self, at: SystemTime) -> String {
        let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let line = JsonLine {
            time: &Utc::of(at).rfc3339(),
            client: self.client,
            method: self.method.as_str(),
            host: &self.host,
            path: &self.path,
            protocol: protocol(self.version),
            status: self.status,
            bytes: self.bytes,
            duration_ms: millis(self.duration),
            route: &self.route,
            upstream: self.upstream.as_deref(),
            server: self.server.as_deref(),
            upstream_ms: self.upstream_time.map(millis),
            verdict: self.verdict.name(),
            rule: self.rule.as_deref(),
            wait_ms: self.wait.map(millis),
            delay_ms: self.delay.map(millis),
            cost: self.cost,
            settled: &self.settled,
            usage: self.usage.as_ref().map(UsageFields::from),
            identity: self.identity.as_deref(),
            error: self.error,
            request_id: self.request_id.as_deref(),
            trace_id: self.trace_id.as_deref(),
            referer: self.referer.as_deref(),
            user_agent: self.user_agent.as_deref(),
        };
        // Texts and numbers can always be written.
        let mut line = serde_json::to_string(&line).unwrap_or_default();
        line.push('\n');
        line
    }

    fn combined(&self, at: SystemTime) -> String {
        let mut line = String::with_capacity(256);
        match self.client {
            // Writing to a string cannot fail.
            Some(client) => _ = write!(line, "{client}"),
            None => line.push('-'),
        }
        let _ = write!(line, " - - [{}] \"", Utc::of(at).common());
        push_escaped(&mut line, self.method.as_str());
        line.push(' ');
        push_escaped(&mut line, &self.path);
        let _ = write!(line, " {}\" {} {}", protocol(self.version), self.status, self.bytes);
        for text in [&self.referer, &self.user_agent] {
            line.push_str(" \"");
            push_escaped(&mut line, text.as_deref().unwrap_or("-"));
            line.push('"');
        }
        let _ = writeln!(line, " {}", self.verdict.name());
        line
    }
}

fn as_map<S: Serializer>(costs: &[(Arc<str>, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(costs.iter().map(|(name, cost)| (&**name, cost)))
}

/// Appends a text as nginx does: quotes, backslashes and bytes that are not printable as `\xHH`.
fn push_escaped(line: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if !matches!(byte, b'"' | b'\\') => line.push(char::from(byte)),
            _ => _ = write!(line, "\\x{byte:02X}"),
        }
    }
}

const fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

/// A time of day in UTC.
struct Utc {
    date: jiff::Timestamp,
}

impl Utc {
    fn of(at: SystemTime) -> Self {
        Self { date: jiff::Timestamp::try_from(at).unwrap_or_default() }
    }

    /// `2026-11-16T12:00:00.123Z`
    fn rfc3339(&self) -> String {
        format!("{:.3}", self.date)
    }

    /// `16/Nov/2026:12:00:00 +0000`
    fn common(&self) -> String {
        self.date.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> LogEntry {
        LogEntry {
            client: Some([192, 0, 2, 7].into()),
            host: "shop.example".to_owned(),
            path: "/a\"b\n".to_owned(),
            status: 429,
            bytes: 12,
            duration: Duration::from_micros(1_500),
            route: "api".to_owned(),
            rule: Some("shop/per_user".to_owned()),
            verdict: RequestVerdict::Denied,
            wait: Some(Duration::from_secs(2)),
            cost: Some(1),
            settled: vec![("user".into(), 0), ("tokens".into(), 25)],
            ..LogEntry::default()
        }
    }

    fn at() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)
    }

    #[test]
    fn a_line_of_json() {
        let line = entry().json(at());
        assert_eq!(
            line,
            concat!(
                r#"{"time":"2023-11-14T22:13:20.123Z","client":"192.0.2.7","method":"GET","#,
                r#""host":"shop.example","path":"/a\"b\n","protocol":"HTTP/1.1","status":429,"#,
                r#""bytes":12,"duration_ms":1.5,"route":"api","verdict":"denied","#,
                r#""rule":"shop/per_user","wait_ms":2000.0,"cost":1,"settled":{"user":0,"tokens":25}}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_line_of_the_combined_format_cannot_be_forged() {
        let user_agent = Some("curl/8 \" 200\n127.0.0.1".to_owned());
        let line = LogEntry { user_agent, ..entry() }.combined(at());
        assert_eq!(
            line,
            concat!(
                r#"192.0.2.7 - - [14/Nov/2023:22:13:20 +0000] "GET /a\x22b\x0A HTTP/1.1" 429 12 "#,
                r#""-" "curl/8 \x22 200\x0A127.0.0.1" denied"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_text_of_a_client_is_cut_between_characters() {
        let text = "é".repeat(TEXT_BYTES_MAX);
        assert_eq!(bounded(&text).len(), TEXT_BYTES_MAX);
        assert_eq!(bounded("é"), "é");
    }

    #[test]
    fn a_rotated_file_is_opened_again() {
        let folder = std::env::temp_dir().join(format!("sluicegate-log-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, rotated) = (folder.join("access.log"), folder.join("access.log.1"));
        let reopen = Arc::new(AtomicBool::new(false));
        let file = append(&path).unwrap();
        let mut log = LogFile { path: path.clone(), file, reopen: reopen.clone() };
        log.write_all(b"first\n").unwrap();
        fs::rename(&path, &rotated).unwrap();
        reopen.store(true, Relaxed);
        log.write_all(b"second\n").unwrap();
        log.flush().unwrap();
        assert_eq!(fs::read_to_string(&rotated).unwrap(), "first\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "second\n");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_opened_has_an_error_with_a_remedy() {
        let path = Some("/nonexistent/access.log".into());
        let config = AccessLogConfig { path, format: AccessLogFormat::Json };
        let error = AccessLog::open(&config).unwrap_err();
        assert!(error.contains("`/nonexistent/access.log`") && error.contains("; name a file"));
    }

    #[cfg(unix)]
    #[test]
    fn a_log_that_nobody_reads_drops_lines_and_blocks_nobody() {
        let folder = std::env::temp_dir().join(format!("sluicegate-pipe-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("access.log");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        // Opening one end waits for the other.
        let reader = std::thread::spawn({
            let path = path.clone();
            move || File::open(path).unwrap()
        });
        let config = AccessLogConfig { path: Some(path), format: AccessLogFormat::Json };
        let log = AccessLog::open(&config).unwrap();
        let reader = reader.join().unwrap();
        // More than the queue and the pipe hold.
        for _ in 0..QUEUE_LINES_MAX + 2_000 {
            log.write(&entry(), at());
        }
        assert!(log.dropped() > 0);
        drop(reader);
        drop(log);
        fs::remove_dir_all(&folder).unwrap();
    }
}
