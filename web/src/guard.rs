//! The rules for requests: from which site, under which name, with which token.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, Method, StatusCode, header};

/// Wrong tokens in a second that are answered one by one.
const WRONG_TOKENS_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);
const TOKEN_BYTES: usize = 16;

/// The secret of one server.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// A random one of 128 bits.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
        filled.map_err(|_| std::io::Error::other("no random numbers"))?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The token of a file's text; `None` if it is too short to be one.
    #[must_use]
    pub fn of_text(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_good = text.len() >= 2 * TOKEN_BYTES && text.bytes().all(|it| it.is_ascii_graphic());
        is_good.then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Takes the same time wherever they differ.
    fn is(&self, other: &str) -> bool {
        let (ours, theirs) = (self.0.as_bytes(), other.as_bytes());
        let differ = ours.iter().zip(theirs).fold(0, |sum, (a, b)| sum | (a ^ b));
        ours.len() == theirs.len() && std::hint::black_box(differ) == 0
    }
}

/// A refused request: the status, the reason, a hint.
pub(crate) type Refusal = (StatusCode, &'static str, &'static str);

/// The refusal of a method that a route does not have.
pub(crate) const NO_METHOD: Refusal = (
    StatusCode::METHOD_NOT_ALLOWED,
    "this address does not answer this method",
    "jobs are changed with 'starling job' and 'starling node'",
);

/// Decides which requests are answered.
#[derive(Debug)]
pub struct Guard {
    token: Token,
    /// Names beside those of loopback.
    hosts: Vec<String>,
    wrong: Mutex<(Instant, u32)>,
}

impl Guard {
    #[must_use]
    pub fn new(token: Token, hosts: Vec<String>) -> Self {
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect();
        Self { token, hosts, wrong: Mutex::new((Instant::now(), 0)) }
    }

    /// Checks a request for the page itself, which has no data.
    pub(crate) fn check_site(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST).unwrap_or_default().to_ascii_lowercase();
        if !self.is_allowed(&host) {
            return Err((
                StatusCode::MISDIRECTED_REQUEST,
                "this name is not one of this server",
                "use the printed address, or name the host with --host",
            ));
        }
        if !matches!(*method, Method::GET | Method::HEAD | Method::POST) {
            return Err(NO_METHOD);
        }
        let foreign =
            (StatusCode::FORBIDDEN, "another site asks", "open the printed address itself");
        if headers.contains_key(header::ORIGIN) {
            let origin = text(header::ORIGIN).unwrap_or_default().to_ascii_lowercase();
            let of = origin.split_once("://").map_or("", |(_, host)| host);
            let is_given = self.hosts.iter().any(|known| known == name_of(of));
            if of != host && !is_given {
                return Err(foreign);
            }
        }
        let is_link = text(header::HeaderName::from_static("sec-fetch-mode")) == Some("navigate")
            && text(header::HeaderName::from_static("sec-fetch-dest")) == Some("document");
        match text(header::HeaderName::from_static("sec-fetch-site")) {
            None | Some("same-origin" | "none") => Ok(()),
            // A link to the page from elsewhere; it leads to no data without the token.
            Some(_) if is_link => Ok(()),
            Some(_) => Err(foreign),
        }
    }

    /// Checks a request for data, after [`Self::check_site`].
    pub(crate) fn check_token(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer "));
        let Some(given) = given else {
            return Err((
                StatusCode::UNAUTHORIZED,
                "the token is missing",
                "open the whole printed address, with the part after '#'",
            ));
        };
        if self.token.is(given) {
            return Ok(());
        }
        if self.is_flooded() {
            return Err((StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens", "wait a second"));
        }
        Err((
            StatusCode::UNAUTHORIZED,
            "the token is wrong",
            "each start of the server has another one: open the address that it printed",
        ))
    }

    fn is_allowed(&self, host: &str) -> bool {
        let name = name_of(host);
        matches!(name, "127.0.0.1" | "[::1]" | "localhost")
            || self.hosts.iter().any(|known| known == name)
    }

    /// Counts a wrong token.
    fn is_flooded(&self) -> bool {
        // The pair is consistent after each step.
        let mut wrong = self.wrong.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if wrong.0.elapsed() > WINDOW {
            *wrong = (Instant::now(), 0);
        }
        wrong.1 = wrong.1.saturating_add(1);
        wrong.1 > WRONG_TOKENS_MAX
    }
}

/// The name in `name:port`.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        let token = Token::of_text(&"a".repeat(32)).expect("it is long enough");
        Guard::new(token, vec!["Proxy.example".to_owned()])
    }

    fn site(pairs: &[(&'static str, &'static str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, header::HeaderValue::from_static(value));
        }
        guard().check_site(&Method::GET, &headers).map_or_else(|it| it.0.as_u16(), |()| 200)
    }

    #[test]
    fn only_loopback_and_given_names_are_answered() {
        for host in ["127.0.0.1:8787", "localhost", "LocalHost:1", "[::1]:80", "proxy.example"] {
            assert_eq!(site(&[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil", "", "[::2]:1"] {
            assert_eq!(site(&[("host", host)]), 421, "{host}");
        }
        assert_eq!(site(&[]), 421);
    }

    #[test]
    fn other_sites_are_refused() {
        let at = ("host", "127.0.0.1:80");
        assert_eq!(site(&[at, ("origin", "http://127.0.0.1:80")]), 200);
        assert_eq!(site(&[at, ("origin", "https://proxy.example")]), 200);
        for origin in ["http://127.0.0.1:81", "null", "http://evil.example", ""] {
            assert_eq!(site(&[at, ("origin", origin)]), 403, "{origin}");
        }
        assert_eq!(site(&[at, ("sec-fetch-site", "same-origin")]), 200);
        assert_eq!(site(&[at, ("sec-fetch-site", "cross-site")]), 403);
        assert_eq!(site(&[at, ("sec-fetch-site", "same-site")]), 403);
        let link = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        assert_eq!(site(&[at, ("sec-fetch-site", "cross-site"), link[0], link[1]]), 200);
        let frame = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
        assert_eq!(site(&[at, ("sec-fetch-site", "cross-site"), frame[0], frame[1]]), 403);
    }

    #[test]
    fn wrong_tokens_are_counted_and_the_right_one_still_works() {
        let guard = guard();
        let with = |token: &str| {
            let mut headers = HeaderMap::new();
            let value = format!("Bearer {token}");
            headers.insert(header::AUTHORIZATION, value.parse().expect("it is ASCII"));
            guard.check_token(&headers).map_or_else(|it| it.0.as_u16(), |()| 200)
        };
        let right = "a".repeat(32);
        assert_eq!(with(&right), 200);
        // The window may end in between: then the count begins again.
        let answers: Vec<u16> = (0..40).map(|_| with("b")).collect();
        assert!(answers.contains(&401) && answers.contains(&429), "{answers:?}");
        assert_eq!(with(&right), 200);
        assert_eq!(with(&right[1..]), 429);
        assert_eq!(guard.check_token(&HeaderMap::new()).unwrap_err().0.as_u16(), 401);
    }

    #[test]
    fn a_token_is_not_shown_by_accident() {
        let token = Token::random().expect("there are random numbers");
        assert_eq!(token.text().len(), 32);
        assert_ne!(token, Token::random().expect("there are random numbers"));
        assert!(!format!("{:?}", Guard::new(token.clone(), Vec::new())).contains(token.text()));
        assert_eq!(Token::of_text("short"), None);
    }
}
