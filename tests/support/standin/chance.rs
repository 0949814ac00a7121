//! What is random in mod-authtoken: subjects of token-less requests, refresh tokens, job ids.
//!
//! A test can say what comes next, so that recorded answers can be had again to the byte.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;

/// The source of random things.
#[derive(Debug, Default)]
pub struct Chance {
    seed: RandomState,
    drawn: u64,
    subjects: VecDeque<String>,
    refresh_tokens: VecDeque<String>,
    jobs: VecDeque<String>,
}

impl Chance {
    /// Makes this the subject of the next token-less request that has none yet.
    pub fn next_subject(&mut self, subject: impl Into<String>) {
        self.subjects.push_back(subject.into());
    }

    /// Makes this the next refresh token.
    pub fn next_refresh_token(&mut self, token: impl Into<String>) {
        self.refresh_tokens.push_back(token.into());
    }

    /// Makes this the next tenant job's id.
    pub fn next_job(&mut self, id: impl Into<String>) {
        self.jobs.push_back(id.into());
    }

    pub(super) fn subject(&mut self) -> String {
        match self.subjects.pop_front() {
            Some(subject) => subject,
            None => format!("UNDEFINED_USER__{}", self.uuid()),
        }
    }

    pub(super) fn job(&mut self) -> String {
        match self.jobs.pop_front() {
            Some(id) => id,
            None => self.uuid(),
        }
    }

    /// Looks like the real one (header, no key, nonce, content, tag), but is nothing but random: the stand-in knows its
    /// refresh tokens by heart instead of reading what is in them.
    pub(super) fn refresh_token(&mut self) -> String {
        if let Some(token) = self.refresh_tokens.pop_front() {
            return token;
        }
        let [nonce, content, tag] =
            [12, 240, 16].map(|length| BASE64URL.encode(self.bytes(length)));
        format!("eyJlbmMiOiJBMjU2R0NNIiwiYWxnIjoiZGlyIn0..{nonce}.{content}.{tag}")
    }

    fn uuid(&mut self) -> String {
        use std::fmt::Write as _;
        let mut bytes = self.bytes(16);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let mut uuid = String::with_capacity(36);
        for (index, byte) in bytes.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                uuid.push('-');
            }
            write!(uuid, "{byte:02x}").expect("a String takes everything");
        }
        uuid
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            self.drawn += 1;
            bytes.extend_from_slice(&self.seed.hash_one(self.drawn).to_ne_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}
