//! What Okapi answered, and what its words mean. Texts are from Okapi's message file and `ProxyService`.

use std::fmt;

use super::TRACE;

/// How much of an answer's body an error shows.
const SHOWN: usize = 300;

/// An answer, read to its end.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body as text.
    pub body: String,
    /// Where the steps of the request went, when Okapi tells (`trace_headers`).
    pub trace: Vec<String>,
    /// Cookies and token of a login; nothing shows them.
    pub(super) given: Vec<(&'static str, String)>,
}

impl Answer {
    /// Reads an answer whole, up to `limit` bytes.
    ///
    /// # Errors
    /// The chain of causes as text, without the address, when there was no answer or it broke off or is too long.
    pub(super) async fn read(
        response: Result<reqwest::Response, reqwest::Error>,
        limit: usize,
    ) -> Result<Self, String> {
        let mut response = response.map_err(chain)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(chain)? {
            if body.len() + chunk.len() > limit {
                return Err(format!("the answer is longer than {limit} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Self {
            status: response.status().as_u16(),
            body: String::from_utf8_lossy(&body).into_owned(),
            trace: values(&response, TRACE),
            given: [super::login::SET_COOKIE, super::TOKEN]
                .into_iter()
                .flat_map(|name| values(&response, name).into_iter().map(move |v| (name, v)))
                .collect(),
        })
    }

    /// 2xx.
    pub(crate) fn succeeded(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// No instance of a module on the request's way is registered (Okapi `ProxyService.resolveUrls`).
    pub(crate) fn says_no_instance(&self) -> bool {
        self.status == 404 && self.body.contains("No running module instance found")
    }

    /// The tenant has nothing that answers this path (Okapi message 10103).
    pub(crate) fn says_no_route(&self) -> bool {
        self.status == 404 && self.body.contains("No suitable module found for path")
    }

    /// The thing asked for is not there; the request did reach Okapi's own code.
    pub(super) fn says_absent(&self) -> bool {
        self.status == 404 && !self.says_no_instance() && !self.says_no_route()
    }

    /// The instance id is in use (Okapi message 10809).
    pub(crate) fn says_duplicate(&self) -> bool {
        self.status == 400 && self.body.contains("Duplicate inst")
    }

    /// Whoever asks is not allowed to, or nobody knows who asks: the auth module's words.
    pub(crate) fn says_denied(&self) -> bool {
        matches!(self.status, 401 | 403)
            || (self.status == 400 && self.body.starts_with("Token missing"))
    }

    /// The request died on its way, which says nothing of the question.
    pub(super) fn may_pass(&self) -> bool {
        self.status >= 500 || self.says_no_instance()
    }

    /// Whether the auth module has had its say on a request without a token, be it yes or no.
    pub(crate) fn passed_auth(&self) -> bool {
        self.succeeded() || matches!(self.status, 400 | 401 | 403)
    }

    /// Whether Okapi tells that the request went to an instance at `url`; `None` when it tells nothing of the module.
    pub(crate) fn went_to(&self, module: &str, url: &str) -> Option<bool> {
        let mut steps = self
            .trace
            .iter()
            .filter_map(|line| {
                let mut words = line.split_whitespace().skip(1);
                (words.next()? == module).then(|| words.next())?
            })
            .peekable();
        steps.peek()?;
        Some(steps.any(|target| {
            target
                .strip_prefix(url)
                .is_some_and(|rest| rest.starts_with('/'))
        }))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.body.trim();
        let end = text
            .char_indices()
            .nth(SHOWN)
            .map_or(text.len(), |(at, _)| at);
        if text.is_empty() {
            write!(f, "{} without a word", self.status)
        } else {
            write!(f, "{}: {}", self.status, &text[..end])
        }
    }
}

/// Shows neither cookies nor a token.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({self})")
    }
}

fn values(response: &reqwest::Response, name: &str) -> Vec<String> {
    response
        .headers()
        .get_all(name)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .collect()
}

/// An error with all its causes: the outermost alone says "error sending request".
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            status,
            body: body.to_owned(),
            trace: Vec::new(),
            given: Vec::new(),
        }
    }

    #[test]
    fn a_404_on_the_way_is_told_from_a_404_of_the_thing_itself() {
        let on_the_way = answer(
            404,
            "No running module instance found for mod-authtoken-2.17.0",
        );
        let itself = answer(404, "mod-authtoken-2.17.0/some-instance");
        let no_route = answer(
            404,
            "No suitable module found for path /users for tenant diku",
        );

        assert!(on_the_way.may_pass() && !on_the_way.says_absent());
        assert!(itself.says_absent() && !itself.may_pass());
        assert!(no_route.says_no_route() && !no_route.says_absent() && !no_route.may_pass());
    }

    #[test]
    fn the_trace_tells_which_instance_a_request_went_to() {
        let mut answer = answer(200, "[ ]");
        assert_eq!(
            answer.went_to("mod-authtoken-2.17.0", "http://127.0.0.1:8071"),
            None
        );

        answer.trace = vec![
            "GET mod-authtoken-2.17.0 http://127.0.0.1:8071/_/proxy/health : 202 1234us".to_owned(),
            "GET okapi-6.2.1 /_/proxy/health : 200 12us".to_owned(),
        ];
        assert_eq!(
            answer.went_to("mod-authtoken-2.17.0", "http://127.0.0.1:8071"),
            Some(true)
        );
        assert_eq!(
            answer.went_to("mod-authtoken-2.17.0", "http://127.0.0.1:80"),
            Some(false)
        );
        assert_eq!(
            answer.went_to("mod-authtoken-2.16.0", "http://127.0.0.1:8071"),
            None
        );
    }

    #[test]
    fn an_error_shows_the_beginning_of_a_long_text_only() {
        let long = answer(500, &"ä".repeat(1000));

        assert_eq!(long.to_string().chars().count(), "500: ".len() + SHOWN);
        assert_eq!(answer(500, " \n").to_string(), "500 without a word");
    }

    #[test]
    fn cookies_and_tokens_of_a_login_are_not_shown() {
        let mut login = answer(201, "{}");
        login.given = vec![("set-cookie", "folioAccessToken=a.b.c".to_owned())];

        assert!(!format!("{login:?} {login}").contains("a.b.c"));
    }
}
