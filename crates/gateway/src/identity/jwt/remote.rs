//! Keys from a URL: fetched in the background, refreshed as its `Cache-Control` says within bounds,
//! and early when a token names an unknown key. A failure keeps the last good keys.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Empty, Limited};
use jsonwebtoken::Algorithm;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::super::IdentityError;
use super::super::follow::TaskGuard;
use super::Keys;
use super::keys::KeySet;
use sluicegate_server::https_client::{HttpsClient, describe, https_client, native_roots};

/// Bounds of the time between two fetches.
const REFRESH_MIN: Duration = Duration::from_secs(60);
const REFRESH_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Without a `Cache-Control`.
const REFRESH_DEFAULT: Duration = Duration::from_secs(3_600);
/// Time between two fetches that unknown keys cause.
const EARLY_INTERVAL: Duration = Duration::from_secs(10);
/// Time after the first failure; doubled by each further one, up to `REFRESH_MIN`.
const BACKOFF: Duration = Duration::from_secs(1);
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const SET_BYTES_MAX: usize = 1 << 20;

/// What requests share with the task that fetches the keys.
#[derive(Debug, Clone)]
pub(super) struct Remote {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    wanted: Notify,
    /// Number of fetches that have ended.
    fetches: watch::Sender<u64>,
    /// Before it no early fetch begins.
    earliest: Mutex<Instant>,
}

/// A fetched set, and for how long it may be used.
#[derive(Debug)]
struct Fetched {
    set: KeySet,
    max_age: Option<Duration>,
}

impl Remote {
    fn new() -> Self {
        let shared = Shared {
            wanted: Notify::new(),
            fetches: watch::Sender::new(0),
            earliest: Mutex::new(Instant::now()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Has the keys fetched early and waits for them, unless that was done a moment ago.
    pub(super) async fn refresh(&self) {
        let mut fetches = self.shared.fetches.subscribe();
        self.shared.wanted.notify_one();
        if Instant::now() < *self.shared.earliest.lock() {
            return;
        }
        // A task that has ended never fetches again.
        let _ = timeout(FETCH_TIMEOUT, fetches.changed()).await;
    }
}

/// Starts to fetch the keys of a URL. Until they are there, no token is valid.
pub(super) fn start(
    url: &str,
    accepted: Vec<Algorithm>,
) -> Result<(Arc<Keys>, Arc<TaskGuard>), IdentityError> {
    let failed = |reason: String| IdentityError { step: format!("use the JWKS `{url}`"), reason };
    let uri: Uri = url.parse().map_err(|_| {
        failed("it is not a URL; write it like `https://issuer.example/jwks.json`".to_owned())
    })?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
        let reason = "it must begin with `https://` or `http://` and a host";
        return Err(failed(reason.to_owned()));
    }
    let client = client().map_err(failed)?;
    let remote = Remote::new();
    let keys = Arc::new(Keys { remote: Some(remote.clone()), ..Keys::default() });
    let (target, name) = (keys.clone(), url.to_owned());
    let task = async move {
        let fetch = || fetch(&client, &uri, &accepted);
        let adopt = |set| target.replace(set);
        follow(&remote, &name, fetch, adopt).await;
    };
    Ok((keys, Arc::new(TaskGuard::spawn(task))))
}

/// Fetches forever.
async fn follow<F, Fut>(remote: &Remote, url: &str, mut fetch: F, adopt: impl Fn(KeySet))
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Fetched, String>>,
{
    let (mut failures, mut is_first, mut is_early) = (0_u32, true, false);
    loop {
        let fetched = timeout(FETCH_TIMEOUT, fetch()).await;
        let fetched = fetched.unwrap_or_else(|_| Err("no response in time".to_owned()));
        let pause = match fetched {
            Ok(Fetched { set, max_age }) => {
                adopt(set);
                if failures > 0 || is_first {
                    info!(url, "JWKS loaded");
                }
                (failures, is_first) = (0, false);
                max_age.unwrap_or(REFRESH_DEFAULT).clamp(REFRESH_MIN, REFRESH_MAX)
            }
            Err(reason) => {
                warn!(url, reason, "JWKS not loaded; the last keys stay in force");
                failures = failures.saturating_add(1);
                (BACKOFF * 2_u32.saturating_pow(failures.min(10) - 1)).min(REFRESH_MIN)
            }
        };
        let now = Instant::now();
        let may_follow = !is_early && failures == 0;
        let earliest = if may_follow { now } else { now + EARLY_INTERVAL.min(pause) };
        *remote.shared.earliest.lock() = earliest;
        remote.shared.fetches.send_modify(|fetches| *fetches += 1);
        is_early = tokio::select! {
            () = sleep_until(now + pause) => false,
            () = async {
                sleep_until(earliest).await;
                remote.shared.wanted.notified().await;
            } => true,
        };
    }
}

fn client() -> Result<HttpsClient<Empty<Bytes>>, String> {
    https_client(native_roots())
}

async fn fetch(
    client: &HttpsClient<Empty<Bytes>>,
    uri: &Uri,
    accepted: &[Algorithm],
) -> Result<Fetched, String> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = uri.clone();
    let accept = HeaderValue::from_static("application/jwk-set+json, application/json");
    request.headers_mut().insert(ACCEPT, accept);
    let response = client.request(request).await.map_err(|error| describe(&error))?;
    if response.status() != StatusCode::OK {
        return Err(format!("status {}", response.status().as_u16()));
    }
    let max_age = max_age(response.headers());
    let text = read(response.into_body()).await?;
    Ok(Fetched { set: KeySet::read(&text, accepted)?, max_age })
}

async fn read<B>(body: B) -> Result<String, String>
where
    B: Body<Data = Bytes, Error = hyper::Error>,
{
    let body = Limited::new(body, SET_BYTES_MAX).collect().await;
    let body = body.map_err(|error| format!("cannot read the body: {error}"))?.to_bytes();
    String::from_utf8(body.into()).map_err(|_| "the body is not UTF-8".to_owned())
}

fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all(CACHE_CONTROL).iter().filter_map(|line| line.to_str().ok());
    let mut seconds = None;
    for directive in lines.flat_map(|line| line.split(',')).map(str::trim) {
        match directive.split_once('=') {
            Some((name, value)) if name.eq_ignore_ascii_case("max-age") => {
                seconds = seconds.or(value.trim_matches('"').parse().ok());
            }
            None if directive.eq_ignore_ascii_case("no-store")
                || directive.eq_ignore_ascii_case("no-cache") =>
            {
                return Some(Duration::ZERO);
            }
            _ => {}
        }
    }
    seconds.map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    const SET: &str =
        r#"{"keys":[{"kty":"oct","kid":"a","k":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}"#;

    fn headers(value: &'static str) -> HeaderMap {
        [(CACHE_CONTROL, HeaderValue::from_static(value))].into_iter().collect()
    }

    #[test]
    fn cache_control_is_read() {
        for (value, seconds) in [
            ("max-age=300", Some(300)),
            ("public, Max-Age=\"7\"", Some(7)),
            ("max-age=300, no-cache", Some(0)),
            ("no-store", Some(0)),
            ("max-age=soon", None),
            ("public", None),
        ] {
            assert_eq!(max_age(&headers(value)), seconds.map(Duration::from_secs), "{value}");
        }
        assert_eq!(max_age(&HeaderMap::new()), None);
    }

    /// Runs the task with these answers, the last one forever; the times of its fetches.
    async fn fetch_times(answers: &[Result<u64, &str>], span: Duration, wants: bool) -> Vec<u64> {
        let remote = Remote::new();
        let (begin, times, adopted) = (Instant::now(), Mutex::new(Vec::new()), AtomicU64::new(0));
        let fetch = || {
            let mut times = times.lock();
            let answer = answers[times.len().min(answers.len() - 1)];
            times.push(begin.elapsed().as_secs());
            async move {
                let age = answer.map_err(str::to_owned)?;
                let set = KeySet::read(SET, &[])?;
                Ok(Fetched { set, max_age: Some(Duration::from_secs(age)) })
            }
        };
        let adopt = |_| {
            adopted.fetch_add(1, Relaxed);
        };
        let unknown_keys = async {
            loop {
                if wants {
                    remote.refresh().await;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let run = async {
            tokio::select! {
                () = follow(&remote, "test", fetch, adopt) => {}
                () = unknown_keys => {}
            }
        };
        let _ = timeout(span, run).await;
        let good = times.lock().len() - answers.iter().filter(|answer| answer.is_err()).count();
        assert_eq!(adopted.load(Relaxed), good as u64);
        times.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn max_age_is_bounded() {
        let hour = Duration::from_secs(3_500);
        assert_eq!(fetch_times(&[Ok(1_000)], hour, false).await, [0, 1_000, 2_000, 3_000]);
        let times = fetch_times(&[Ok(0)], Duration::from_secs(200), false).await;
        assert_eq!(times, [0, 60, 120, 180]);
        let days = Duration::from_secs(3 * 24 * 3_600 - 1);
        let times = fetch_times(&[Ok(u64::from(u32::MAX))], days, false).await;
        assert_eq!(times, [0, 86_400, 172_800]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_recover() {
        let answers = [Err("a"), Err("b"), Err("c"), Ok(600)];
        let times = fetch_times(&answers, Duration::from_secs(100), false).await;
        assert_eq!(times, [0, 1, 3, 7]);
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_keys_fetch_early_but_not_often() {
        let times = fetch_times(&[Ok(3_600)], Duration::from_secs(45), true).await;
        assert_eq!(times, [0, 0, 10, 20, 30, 40]);
    }
}
