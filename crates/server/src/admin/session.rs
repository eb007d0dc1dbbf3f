//! Sessions of browsers, in memory: a restart ends them.
//!
//! A session refers to the token that it began with by its hash, and ends with it. The cookie has
//! 256 random bits; only their hash is stored.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use sluicegate::{Span, Timestamp};

use super::access::TokenHash;

/// Name of the cookie.
pub(super) const COOKIE: &str = "sluicegate_session";
/// A session ends when it was not used for this long.
const IDLE_MAX: Span = Span::from_secs(60 * 60);
/// A session ends this long after its login.
const AGE_MAX: Span = Span::from_secs(12 * 60 * 60);
/// Maximum number of sessions; beyond it, the one that was not used for longest ends.
const SESSIONS_MAX: usize = 1_024;

/// Sessions by the hash of their cookie. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Sessions(Arc<Mutex<HashMap<[u8; 32], LoginSession>>>);

#[derive(Debug, Clone, Copy)]
struct LoginSession {
    token: TokenHash,
    begun: Timestamp,
    used: Timestamp,
}

/// The secret of a session.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SessionId(String);

impl Sessions {
    /// Begins a session; `None` if the system has no random numbers.
    pub(super) fn begin(&self, token: TokenHash, now: Timestamp) -> Option<SessionId> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        let id = SessionId(URL_SAFE_NO_PAD.encode(bytes));
        let mut sessions = self.0.lock();
        sessions.retain(|_, session| session.is_live(now));
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.used);
            if let Some(key) = oldest.map(|(key, _)| *key) {
                sessions.remove(&key);
            }
        }
        sessions.insert(id.hash(), LoginSession { token, begun: now, used: now });
        Some(id)
    }

    /// The token of a live session, which is used now.
    pub(super) fn resume(&self, id: &SessionId, now: Timestamp) -> Option<TokenHash> {
        let mut sessions = self.0.lock();
        let session = sessions.get_mut(&id.hash()).filter(|session| session.is_live(now))?;
        session.used = now;
        Some(session.token)
    }

    /// The number of live sessions.
    pub(super) fn count(&self, now: Timestamp) -> usize {
        self.0.lock().values().filter(|session| session.is_live(now)).count()
    }

    /// Ends a session.
    pub(super) fn end(&self, id: &SessionId) {
        self.0.lock().remove(&id.hash());
    }
}

impl LoginSession {
    fn is_live(&self, now: Timestamp) -> bool {
        now.since(self.used) < IDLE_MAX && now.since(self.begun) < AGE_MAX
    }
}

impl SessionId {
    /// The session of the cookies of a request.
    pub(super) fn of_cookies(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut cookies = values.flat_map(|value| value.split(';')).map(str::trim);
        let prefix = |cookie: &str| {
            let (name, value) = cookie.split_once('=')?;
            (name == COOKIE).then(|| Self(value.to_owned()))
        };
        cookies.find_map(prefix)
    }

    /// Value of `Set-Cookie` that begins the session in a browser.
    pub(super) fn to_cookie(&self) -> String {
        let seconds = AGE_MAX.as_micros() / 1_000_000;
        format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}", self.0)
    }

    /// Value of `Set-Cookie` that ends the session in a browser.
    pub(super) fn removal() -> String {
        format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")
    }

    fn hash(&self) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, self.0.as_bytes()).as_ref());
        hash
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.after(Span::from_secs(seconds))
    }

    fn session(sessions: &Sessions, now: Timestamp) -> SessionId {
        sessions.begin(TokenHash::of("secret"), now).unwrap()
    }

    #[test]
    fn a_session_ends_when_idle_and_by_age() {
        let sessions = Sessions::default();
        let id = session(&sessions, at(0));
        assert!(sessions.resume(&id, at(3_599)).is_some());
        assert!(sessions.resume(&id, at(3_599 + 3_600)).is_none());
        let id = session(&sessions, at(0));
        let mut now = 0;
        while now + 3_000 < 12 * 3_600 {
            now += 3_000;
            assert!(sessions.resume(&id, at(now)).is_some(), "at {now}");
        }
        assert!(sessions.resume(&id, at(12 * 3_600)).is_none());
    }

    #[test]
    fn a_session_ends_at_logout_and_others_go_on() {
        let sessions = Sessions::default();
        let (one, other) = (session(&sessions, at(0)), session(&sessions, at(0)));
        assert_ne!(one, other);
        sessions.end(&one);
        assert!(sessions.resume(&one, at(1)).is_none());
        assert!(sessions.resume(&other, at(1)).is_some());
        assert_eq!((sessions.count(at(2)), sessions.count(at(3_601))), (1, 0));
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let sessions = Sessions::default();
        let first = session(&sessions, at(0));
        let second = session(&sessions, at(1));
        (2..SESSIONS_MAX as u64 + 1).for_each(|second| drop(session(&sessions, at(second))));
        assert!(sessions.resume(&first, at(1_030)).is_none());
        assert!(sessions.resume(&second, at(1_030)).is_some());
        assert_eq!(sessions.0.lock().len(), SESSIONS_MAX);
    }
}
