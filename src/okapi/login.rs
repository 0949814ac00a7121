//! Who asks: nobody, a token, or a user with a password who logs in when a token is needed.
//!
//! mod-login offers `/authn/login-with-expiry` (a cookie, ten minutes) and, until it was retired, `/authn/login` (a header, no
//! end). The first is tried first; only its absence leads to the second, never a refusal.

use std::path::{Path, PathBuf};

use reqwest::Method;
use serde_json::json;

use super::{Answer, Okapi, OkapiError, Secret, TOKEN};

pub(super) const SET_COOKIE: &str = "set-cookie";
/// The cookie that carries the access token (mod-login `LoginAPI`).
const ACCESS_TOKEN: &str = "folioAccessToken=";
/// No name, password or token is longer; a larger file is the wrong file.
const MAX_FILE: usize = 64 * 1024;

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) enum Credentials {
    /// Nobody: right for an Okapi that is not secured.
    Nobody,
    /// Whoever the token stands for.
    Token(Secret),
    /// A user who logs in.
    User {
        /// The user name.
        name: String,
        /// The password.
        password: Secret,
    },
}

impl Credentials {
    /// Whether a token that is no longer good can be replaced.
    pub(super) fn can_renew(&self) -> bool {
        match self {
            Self::Nobody | Self::Token(_) => false,
            Self::User { .. } => true,
        }
    }
}

/// Why a file with a name, a password or a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// It cannot be read.
    #[error("file {path}: {source}")]
    Unreadable {
        /// The file as named.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is nothing in it.
    #[error("file {path} is empty; it must hold the value and nothing else")]
    Empty {
        /// The file as named.
        path: PathBuf,
    },
    /// It cannot be what it should be.
    #[error("file {path} is not a single line of text; it must hold the value and nothing else")]
    NotAValue {
        /// The file as named.
        path: PathBuf,
    },
}

/// Reads a name, a password or a token; line ends behind it are dropped, as editors and `echo` add one.
///
/// # Errors
/// When the file cannot be read, or holds nothing, or more than one line. No error shows what it holds.
pub(crate) fn read_value(path: &Path) -> Result<String, FileError> {
    let content = std::fs::read(path).map_err(|source| FileError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let not_a_value = || FileError::NotAValue {
        path: path.to_owned(),
    };
    if content.len() > MAX_FILE {
        return Err(not_a_value());
    }
    let text = String::from_utf8(content).map_err(|_| not_a_value())?;
    let value = text.trim_end_matches(['\r', '\n']);
    if value.is_empty() {
        return Err(FileError::Empty {
            path: path.to_owned(),
        });
    }
    if value.contains(['\r', '\n', '\0']) {
        return Err(not_a_value());
    }
    Ok(value.to_owned())
}

impl Okapi {
    /// The token to ask with, if any; logs in when there is none yet.
    pub(super) async fn token(&self) -> Result<Option<Secret>, OkapiError> {
        match &self.credentials {
            Credentials::Nobody => Ok(None),
            Credentials::Token(token) => Ok(Some(token.clone())),
            Credentials::User { name, password } => {
                if let Some(token) = self.current_token() {
                    return Ok(Some(token));
                }
                let token = self.log_in(name, password).await?;
                self.keep_token(Some(token.clone()));
                Ok(Some(token))
            }
        }
    }

    async fn log_in(&self, name: &str, password: &Secret) -> Result<Secret, OkapiError> {
        let mut answer = self.try_login("login-with-expiry", name, password).await?;
        if answer.status == 404 && !answer.says_no_instance() {
            answer = self.try_login("login", name, password).await?;
        }
        if !answer.succeeded() {
            return Err(OkapiError::Login {
                user: name.to_owned(),
                tenant: self.tenant().to_owned(),
                answer: Box::new(answer),
            });
        }
        token_of(&answer).ok_or_else(|| OkapiError::NoToken {
            user: name.to_owned(),
            tenant: self.tenant().to_owned(),
        })
    }

    async fn try_login(
        &self,
        route: &str,
        name: &str,
        password: &Secret,
    ) -> Result<Answer, OkapiError> {
        let body = json!({ "username": name, "password": password.reveal() });
        let url = self.at(&["authn", route]);
        self.send(Method::POST, url, self.tenant(), None, Some(body))
            .await
            .map(|(_, answer)| answer)
    }
}

fn token_of(answer: &Answer) -> Option<Secret> {
    let cookie = answer
        .given
        .iter()
        .filter(|(name, _)| *name == SET_COOKIE)
        .find_map(|(_, cookie)| cookie.trim_start().strip_prefix(ACCESS_TOKEN))
        .map(|rest| rest.split(';').next().unwrap_or(rest).trim());
    let header = || {
        let given = answer.given.iter().find(|(name, _)| *name == TOKEN);
        given.map(|(_, token)| token.as_str())
    };
    cookie
        .or_else(header)
        .map(Secret::new)
        .filter(Secret::is_one_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(given: Vec<(&'static str, String)>) -> Answer {
        Answer {
            status: 201,
            body: String::new(),
            trace: Vec::new(),
            given,
        }
    }

    #[test]
    fn the_access_token_is_taken_from_its_cookie_or_else_from_the_header() {
        let cookies = answer(vec![
            (
                SET_COOKIE,
                "folioRefreshToken=r; Path=/authn; HttpOnly".to_owned(),
            ),
            (
                SET_COOKIE,
                "folioAccessToken=a.b.c; Max-Age=600; Path=/; HttpOnly".to_owned(),
            ),
        ]);
        let header = answer(vec![(TOKEN, "d.e.f".to_owned())]);

        assert_eq!(token_of(&cookies), Some(Secret::new("a.b.c")));
        assert_eq!(token_of(&header), Some(Secret::new("d.e.f")));
        assert_eq!(token_of(&answer(Vec::new())), None);
        assert_eq!(
            token_of(&answer(vec![(
                SET_COOKIE,
                "folioAccessToken=; Max-Age=0".to_owned()
            )])),
            None
        );
    }

    #[test]
    fn the_line_end_of_a_file_is_no_part_of_the_password() {
        let file = tempfile::NamedTempFile::new().unwrap();

        std::fs::write(file.path(), " pass word \r\n").unwrap();
        assert_eq!(read_value(file.path()).unwrap(), " pass word ");

        std::fs::write(file.path(), "\n").unwrap();
        assert!(matches!(
            read_value(file.path()),
            Err(FileError::Empty { .. })
        ));

        std::fs::write(file.path(), "user\nhunter2\n").unwrap();
        let error = read_value(file.path()).unwrap_err().to_string();
        assert!(
            error.contains("single line") && !error.contains("hunter2"),
            "{error}"
        );
    }
}
