//! The auth module's answer as a value: may it be kept, for how long, is it still good, and how is it given again.
//!
//! Pure: `now` is passed in. Only an answer that proves itself to belong to its question is ever kept; every doubt is a
//! [`NotStored`]. A kept decision does not hold the request's token: the request that finds it has just brought the
//! very same token along (its key compares the whole of it), so the answer is put together around that one.

use crate::clock::{Now, WallMillis};
use crate::headers::{self, MODULE_TOKENS, PERMISSIONS, TOKEN, USER_ID};
use crate::invalidation::{Asked, Tick};
use crate::key::Question;
use crate::token::{Claims, Kind};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, DATE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What the auth module said, whole.
#[derive(Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers, without those of its connection.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// Why an answer is passed on and not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotStored {
    /// Not exactly 202.
    Status,
    /// It has a body.
    Body,
    /// It sets a cookie.
    SetCookie,
    /// A header that may be there once is there twice.
    DuplicateHeader,
    /// The module tokens are missing, broken, not for the modules asked, or `_` is not the request's token.
    ModuleTokens,
    /// The permissions are missing or no array of texts.
    Permissions,
    /// `X-Okapi-User-Id` is not the request's, else the token's.
    UserId,
    /// The token cannot be read.
    Token,
    /// The token is expired, or will be within the skew.
    Expired,
    /// The token was minted for one request.
    OneShot,
    /// Larger than [`LARGEST`].
    TooLarge,
    /// `CACHE_TTL` is `0s`.
    TtlZero,
    /// Asked during a hold.
    Hold,
    /// Revoked since it was asked.
    Revoked,
    /// The same question was refused meanwhile.
    Refused,
}

impl NotStored {
    /// Every reason, for metrics that are there from the start.
    pub const ALL: [Self; 15] = [
        Self::Status,
        Self::Body,
        Self::SetCookie,
        Self::DuplicateHeader,
        Self::ModuleTokens,
        Self::Permissions,
        Self::UserId,
        Self::Token,
        Self::Expired,
        Self::OneShot,
        Self::TooLarge,
        Self::TtlZero,
        Self::Hold,
        Self::Revoked,
        Self::Refused,
    ];

    /// The reason as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Body => "body",
            Self::SetCookie => "set_cookie",
            Self::DuplicateHeader => "duplicate_header",
            Self::ModuleTokens => "module_tokens",
            Self::Permissions => "permissions",
            Self::UserId => "user_id",
            Self::Token => "token",
            Self::Expired => "expired",
            Self::OneShot => "one_shot",
            Self::TooLarge => "too_large",
            Self::TtlZero => "ttl_zero",
            Self::Hold => "hold",
            Self::Revoked => "revoked",
            Self::Refused => "refused",
        }
    }
}

/// The largest header block of an answer that is kept, in bytes: what Okapi accepts.
pub const LARGEST: usize = 8192;

/// How long decisions live.
#[derive(Clone, Copy, Debug)]
pub struct LifePolicy {
    /// `CACHE_TTL`.
    pub ttl: Duration,
    /// `CACHE_TTL_JITTER`: the share of the ttl that is taken off at random.
    pub jitter: f64,
    /// `EXPIRY_SKEW`, taken off the token's `exp`.
    pub skew: Duration,
    /// `CACHE_REFRESH_AHEAD`: the share of the life after which a hit asks again; 1 is never.
    pub refresh_ahead: f64,
    /// `CACHE_STALE_IF_ERROR`: how long past its life a decision may answer while upstream is down.
    pub stale_if_error: Duration,
}

/// An answer that proved itself: the parts that are not in the request anyway.
#[derive(Debug)]
pub struct Proven {
    permissions: HeaderValue,
    tokens: ModuleTokens,
    user_id: AnswerUser,
    odd: Option<Odd>,
}

/// Where the answer's `X-Okapi-User-Id` comes from.
#[derive(Debug)]
enum AnswerUser {
    /// The request's header, or there is none in either.
    Request,
    /// The token.
    Token(HeaderValue),
}

/// The module tokens with the place of the request's own token.
enum ModuleTokens {
    /// `{"_":"<token>"}`: nothing to keep.
    Own,
    /// The value without the request's token, and where it goes.
    Around { rest: Box<[u8]>, at: usize },
    /// The value as it came, where the token does not stand in it literally.
    Whole(Box<HeaderValue>),
}

/// `X-Okapi-Token` of the answer.
enum AnswerToken {
    /// The request's, as nearly always.
    Same,
    /// Another one: a token without `type` gets one added.
    Other(HeaderValue),
    /// None.
    Absent,
}

impl fmt::Debug for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Odd(…)")
    }
}

impl fmt::Debug for ModuleTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModuleTokens(…)")
    }
}

impl fmt::Debug for AnswerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerToken(…)")
    }
}

/// Looks whether an answer belongs to its question and may be kept at all (design invariant 5).
///
/// # Errors
/// The first reason against it.
pub fn prove(
    question: &Question<'_>,
    claims: Option<&Claims>,
    answer: &Answer,
) -> Result<Proven, NotStored> {
    if answer.status != StatusCode::ACCEPTED {
        return Err(NotStored::Status);
    }
    // A HEAD answer has no body, but may tell the length of the one that a GET would have had.
    let length = answer
        .headers
        .get(CONTENT_LENGTH)
        .map(HeaderValue::as_bytes);
    if !answer.body.is_empty() || length.is_some_and(|length| length != b"0") {
        return Err(NotStored::Body);
    }
    if answer.headers.contains_key(SET_COOKIE) {
        return Err(NotStored::SetCookie);
    }
    if answer.headers.keys_len() != answer.headers.len() {
        return Err(NotStored::DuplicateHeader);
    }
    let size: usize = answer
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 2)
        .sum();
    if size > LARGEST {
        return Err(NotStored::TooLarge);
    }
    let claims = claims.ok_or(NotStored::Token)?;
    if claims.kind == Kind::OneShot {
        return Err(NotStored::OneShot);
    }
    let token = question.token.ok_or(NotStored::Token)?;
    let permissions = answer
        .headers
        .get(PERMISSIONS)
        .ok_or(NotStored::Permissions)?;
    serde_json::from_slice::<Vec<Cow<'_, str>>>(permissions.as_bytes())
        .map_err(|_| NotStored::Permissions)?;
    Ok(Proven {
        permissions: permissions.clone(),
        tokens: prove_tokens(question, token, answer)?,
        user_id: prove_user(question, claims, answer)?,
        odd: odd(token, &answer.headers),
    })
}

fn prove_user(
    question: &Question<'_>,
    claims: &Claims,
    answer: &Answer,
) -> Result<AnswerUser, NotStored> {
    let found = answer.headers.get(USER_ID);
    match (question.user_id, claims.user.as_deref(), found) {
        (Some(header), _, Some(found)) if header == found.as_bytes() => Ok(AnswerUser::Request),
        (None, Some(user), Some(found)) if user.as_bytes() == found.as_bytes() => {
            Ok(AnswerUser::Token(found.clone()))
        }
        (None, None, None) => Ok(AnswerUser::Request),
        _ => Err(NotStored::UserId),
    }
}

fn prove_tokens(
    question: &Question<'_>,
    token: &[u8],
    answer: &Answer,
) -> Result<ModuleTokens, NotStored> {
    let value = answer
        .headers
        .get(MODULE_TOKENS)
        .ok_or(NotStored::ModuleTokens)?;
    let mut tokens: Object<'_, Text<'_>> =
        serde_json::from_slice(value.as_bytes()).map_err(|_| NotStored::ModuleTokens)?;
    let own = tokens
        .0
        .iter()
        .position(|(name, _)| name == "_")
        .ok_or(NotStored::ModuleTokens)?;
    let (_, Text(own)) = tokens.0.remove(own);
    if own.as_bytes() != token {
        return Err(NotStored::ModuleTokens);
    }
    let asked = question.module_permissions.unwrap_or_default();
    let mut asked: Object<'_, Ignored> =
        serde_json::from_slice(asked).map_err(|_| NotStored::ModuleTokens)?;
    if !tokens.sorted_names().eq(asked.sorted_names()) {
        return Err(NotStored::ModuleTokens);
    }
    Ok(ModuleTokens::around(value, token))
}

/// What the answer says beyond the usual; a `Date` would be a lie when it is given again.
fn odd(token: &[u8], answer: &HeaderMap) -> Option<Odd> {
    const KNOWN: [HeaderName; 7] = [
        CONTENT_LENGTH,
        CONTENT_TYPE,
        DATE,
        PERMISSIONS,
        MODULE_TOKENS,
        TOKEN,
        USER_ID,
    ];
    let content_type = answer.get(CONTENT_TYPE);
    let answer_token = match answer.get(TOKEN) {
        Some(same) if same.as_bytes() == token => AnswerToken::Same,
        Some(other) => AnswerToken::Other(compact(other)),
        None => AnswerToken::Absent,
    };
    let more: Box<[_]> = answer
        .iter()
        .filter(|(name, _)| !KNOWN.contains(name) && !headers::hop_by_hop(name.as_str()))
        .map(|(name, value)| (name.clone(), compact(value)))
        .collect();
    let usual = content_type.map(HeaderValue::as_bytes) == Some(USUAL_TYPE)
        && matches!(answer_token, AnswerToken::Same)
        && more.is_empty();
    (!usual).then(|| Odd {
        content_type: content_type.map(compact),
        token: answer_token,
        more: (!more.is_empty()).then_some(more),
    })
}

/// A copy of its own: the answer's value is a slice of a whole read buffer, which a kept one would keep as well.
fn compact(value: &HeaderValue) -> HeaderValue {
    HeaderValue::from_bytes(value.as_bytes()).expect("a header value's bytes make a header value")
}

const OWN_START: &[u8] = br#"{"_":""#;
const OWN_END: &[u8] = br#""}"#;

impl ModuleTokens {
    fn around(value: &HeaderValue, token: &[u8]) -> Self {
        let value_bytes = value.as_bytes();
        // Where the token stands behind `"_":"`; a token in another spelling (spaces, escapes) stays part of the value.
        let marker = [br#""_":""#, token, br#"""#].concat();
        let Some(found) = value_bytes
            .windows(marker.len())
            .position(|window| window == marker)
        else {
            return Self::Whole(Box::new(compact(value)));
        };
        let at = found + br#""_":""#.len();
        let rest = [&value_bytes[..at], &value_bytes[at + token.len()..]].concat();
        if at == OWN_START.len() && rest.len() == OWN_START.len() + OWN_END.len() {
            return Self::Own;
        }
        Self::Around {
            rest: rest.into_boxed_slice(),
            at,
        }
    }

    /// The value, in the pieces that are kept and the token between them.
    fn pieces<'a>(&'a self, token: &'a [u8]) -> [&'a [u8]; 3] {
        match self {
            Self::Own => [OWN_START, token, OWN_END],
            Self::Around { rest, at } => {
                let (start, end) = rest.split_at(*at);
                [start, token, end]
            }
            Self::Whole(value) => [value.as_bytes(), b"", b""],
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Own => 0,
            Self::Around { rest, .. } => rest.len(),
            Self::Whole(value) => size_of::<HeaderValue>() + value.len(),
        }
    }
}

/// Values that many decisions share, so that each is kept once.
pub trait Share {
    /// The one kept copy of this value, with bytes of its own, and how many bytes the decision that holds it has to
    /// count as its own on that account.
    fn share(&self, value: &HeaderValue) -> (Arc<Kept>, u32);
}

/// A shared value, which is counted as long as any decision holds it, whatever table has dropped it since.
#[derive(Debug)]
pub struct Kept {
    value: HeaderValue,
    live: Arc<AtomicU64>,
}

impl Kept {
    /// Copies the value, and adds what it costs to `live` until nobody holds it any more.
    ///
    /// # Panics
    /// Never: a header value's bytes make a header value.
    pub fn new(value: &HeaderValue, live: &Arc<AtomicU64>) -> Self {
        let kept = Self {
            value: compact(value),
            live: live.clone(),
        };
        live.fetch_add(kept.cost(), Ordering::Relaxed);
        kept
    }

    /// Bytes that it holds, itself and the place it is in included.
    pub fn cost(&self) -> u64 {
        (size_of::<Self>() + 2 * size_of::<usize>() + self.value.len()) as u64
    }
}

impl std::ops::Deref for Kept {
    type Target = HeaderValue;

    fn deref(&self) -> &HeaderValue {
        &self.value
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.live.fetch_sub(self.cost(), Ordering::Relaxed);
    }
}

/// A decision that is kept. A hit reads all of it, so it is two cache lines; what few answers have is behind `odd`.
pub struct Decision {
    asked: Tick,
    life: Life,
    permissions: Arc<Kept>,
    user_id: UserId,
    tokens: ModuleTokens,
    odd: Option<Box<Odd>>,
    /// Bytes of the shared values that count as this decision's own.
    shared_bytes: u32,
    refreshing: AtomicBool,
}

/// `X-Okapi-User-Id` of the answer.
enum UserId {
    /// The request's own header, or none where it has none.
    Request,
    /// The token's, which the request does not show.
    Token(Arc<Kept>),
}

/// What the answer takes from the request that found it.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    token: Option<&'a [u8]>,
    user_id: Option<&'a [u8]>,
}

impl<'a> Asker<'a> {
    /// Who asks this.
    pub fn of(question: &Question<'a>) -> Self {
        Self {
            token: question.token,
            user_id: question.user_id,
        }
    }
}

impl fmt::Debug for Asker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asker(…)")
    }
}

/// A header of an answer.
#[derive(Clone, Copy)]
enum Name<'a> {
    ContentType,
    Permissions,
    ModuleTokens,
    Token,
    UserId,
    Other(&'a HeaderName),
}

impl Name<'_> {
    fn name(self) -> HeaderName {
        match self {
            Self::ContentType => CONTENT_TYPE,
            Self::Permissions => PERMISSIONS,
            Self::ModuleTokens => MODULE_TOKENS,
            Self::Token => TOKEN,
            Self::UserId => USER_ID,
            Self::Other(name) => name.clone(),
        }
    }

    /// Writes the name as the auth module spells it, and the colon.
    fn write(self, wire: &mut Vec<u8>) {
        let usual: &[u8] = match self {
            Self::ContentType => b"Content-Type: ",
            Self::Permissions => b"X-Okapi-Permissions: ",
            Self::ModuleTokens => b"X-Okapi-Module-Tokens: ",
            Self::Token => b"X-Okapi-Token: ",
            Self::UserId => b"X-Okapi-User-Id: ",
            Self::Other(name) => {
                let mut start = true;
                for byte in name.as_str().bytes() {
                    wire.push(if start {
                        byte.to_ascii_uppercase()
                    } else {
                        byte
                    });
                    start = byte == b'-';
                }
                b": "
            }
        };
        wire.extend_from_slice(usual);
    }
}

/// What an answer has beyond the usual.
struct Odd {
    content_type: Option<HeaderValue>,
    token: AnswerToken,
    more: Option<Box<[(HeaderName, HeaderValue)]>>,
}

/// The content type of every filter answer (mod-authtoken `FilterApi`).
const USUAL_TYPE: &[u8] = b"text/plain";

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("asked", &self.asked)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

/// When a decision may answer. Absolute: nothing extends it. Durations in milliseconds; a life is at most ten minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    stored: Now,
    exp_until: WallMillis,
    fresh_for: u32,
    refresh_after: u32,
}

/// How a decision stands at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Within its life.
    Fresh,
    /// Within its life, late enough to ask again in the background.
    Late,
    /// Past its life, within stale-if-error.
    Stale,
    /// Of no use.
    Gone,
}

impl Decision {
    /// Makes the decision to keep.
    ///
    /// `random` is in `0.0..1.0` and says how much of the jitter is taken off.
    ///
    /// # Errors
    /// [`NotStored::TtlZero`] and [`NotStored::Expired`] if it would never be good.
    pub fn keep(
        proven: Proven,
        claims: &Claims,
        asked: Asked,
        now: Now,
        policy: &LifePolicy,
        random: f64,
        shared: &impl Share,
    ) -> Result<Self, NotStored> {
        let life = Life::new(claims.exp, now, policy, random)?;
        let (permissions, permission_bytes) = shared.share(&proven.permissions);
        let (user_id, user_bytes) = match proven.user_id {
            AnswerUser::Request => (UserId::Request, 0),
            AnswerUser::Token(user) => {
                let (user, bytes) = shared.share(&user);
                (UserId::Token(user), bytes)
            }
        };
        Ok(Self {
            asked: asked.tick,
            life,
            permissions,
            user_id,
            tokens: proven.tokens,
            odd: proven.odd.map(Box::new),
            shared_bytes: permission_bytes.saturating_add(user_bytes),
            refreshing: AtomicBool::new(false),
        })
    }

    /// The revocation counter when its question was asked.
    pub fn asked(&self) -> Tick {
        self.asked
    }

    /// When it was stored.
    pub fn stored(&self) -> Now {
        self.life.stored
    }

    /// Monotonic milliseconds until which it answers, unless a wall clock ends it earlier.
    pub fn fresh_until(&self) -> u64 {
        self.life.stored.mono + u64::from(self.life.fresh_for)
    }

    /// How it stands now.
    pub fn freshness(&self, now: Now, policy: &LifePolicy) -> Freshness {
        self.life.at(now, policy)
    }

    /// Claims the one background refresh of this decision. True for the first who asks.
    pub fn claim_refresh(&self) -> bool {
        !self.refreshing.load(Ordering::Relaxed) && !self.refreshing.swap(true, Ordering::Relaxed)
    }

    /// Tells the answer's headers one by one, each value in pieces to be put together. The token and the user id are the
    /// request's own, which are the answer's.
    fn tell(&self, asker: Asker<'_>, mut field: impl FnMut(Name<'_>, [&[u8]; 3])) {
        let odd = self.odd.as_deref();
        let content_type = match odd {
            None => Some(USUAL_TYPE),
            Some(odd) => odd.content_type.as_ref().map(HeaderValue::as_bytes),
        };
        if let Some(content_type) = content_type {
            field(Name::ContentType, [content_type, b"", b""]);
        }
        field(Name::Permissions, [self.permissions.as_bytes(), b"", b""]);
        if let Some(token) = asker.token {
            field(Name::ModuleTokens, self.tokens.pieces(token));
            match odd.map_or(&AnswerToken::Same, |odd| &odd.token) {
                AnswerToken::Same => field(Name::Token, [token, b"", b""]),
                AnswerToken::Other(other) => field(Name::Token, [other.as_bytes(), b"", b""]),
                AnswerToken::Absent => {}
            }
        }
        let user_id = match &self.user_id {
            UserId::Request => asker.user_id,
            UserId::Token(user) => Some(user.as_bytes()),
        };
        if let Some(user_id) = user_id {
            field(Name::UserId, [user_id, b"", b""]);
        }
        let more = odd.and_then(|odd| odd.more.as_deref()).unwrap_or_default();
        for (name, value) in more {
            field(Name::Other(name), [value.as_bytes(), b"", b""]);
        }
    }

    /// The answer's headers to who has just asked.
    ///
    /// # Panics
    /// Never: pieces of header values make a header value.
    pub fn answer(&self, asker: Asker<'_>) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(8);
        self.tell(asker, |name, pieces| {
            let value = HeaderValue::from_maybe_shared(Bytes::from(pieces.concat()))
                .expect("pieces of header values make a header value");
            headers.insert(name.name(), value);
        });
        headers
    }

    /// The answer as it goes over the wire, appended: the very bytes that the HTTP library makes of [`Self::answer`].
    pub fn write_answer(&self, asker: Asker<'_>, wire: &mut Vec<u8>) {
        wire.extend_from_slice(b"HTTP/1.1 202 Accepted\r\n");
        self.tell(asker, |name, pieces| {
            name.write(wire);
            for piece in pieces {
                wire.extend_from_slice(piece);
            }
            wire.extend_from_slice(b"\r\n");
        });
        wire.extend_from_slice(b"Content-Length: 0\r\n\r\n");
    }

    /// Bytes that this decision holds on the heap, of the values it shares only those that count as its own.
    pub fn heap_bytes(&self) -> usize {
        let odd = self.odd.as_deref().map_or(0, |odd| {
            let token = match &odd.token {
                AnswerToken::Other(other) => other.len(),
                AnswerToken::Absent | AnswerToken::Same => 0,
            };
            let more: usize = odd
                .more
                .iter()
                .flatten()
                .map(|(name, value)| {
                    size_of::<(HeaderName, HeaderValue)>() + name.as_str().len() + value.len()
                })
                .sum();
            size_of::<Odd>() + odd.content_type.as_ref().map_or(0, HeaderValue::len) + token + more
        });
        self.tokens.bytes() + odd + self.shared_bytes as usize
    }
}

impl Life {
    fn new(
        exp: Option<u64>,
        now: Now,
        policy: &LifePolicy,
        random: f64,
    ) -> Result<Self, NotStored> {
        let ttl = policy
            .ttl
            .mul_f64(1.0 - policy.jitter * random)
            .min(policy.ttl);
        let fresh_for = short_millis(ttl);
        if fresh_for == 0 {
            return Err(NotStored::TtlZero);
        }
        let exp_until = exp.map_or(u64::MAX, |exp| {
            exp.saturating_mul(1_000)
                .saturating_sub(crate::clock::millis(policy.skew.as_millis()))
        });
        if exp_until <= now.wall {
            return Err(NotStored::Expired);
        }
        let refresh_after = if policy.refresh_ahead >= 1.0 {
            u32::MAX
        } else {
            short_millis(ttl.mul_f64(policy.refresh_ahead))
        };
        Ok(Self {
            stored: now,
            exp_until,
            fresh_for,
            refresh_after,
        })
    }

    fn at(&self, now: Now, policy: &LifePolicy) -> Freshness {
        // A clock that runs backwards says nothing about how old this is.
        let (Some(age), Some(wall_age)) = (
            now.mono.checked_sub(self.stored.mono),
            now.wall.checked_sub(self.stored.wall),
        ) else {
            return Freshness::Gone;
        };
        if now.wall >= self.exp_until {
            return Freshness::Gone;
        }
        let fresh_for = u64::from(self.fresh_for);
        let oldest = age.max(wall_age);
        if oldest < fresh_for {
            if age >= u64::from(self.refresh_after) {
                Freshness::Late
            } else {
                Freshness::Fresh
            }
        } else if oldest < fresh_for + crate::clock::millis(policy.stale_if_error.as_millis()) {
            Freshness::Stale
        } else {
            Freshness::Gone
        }
    }
}

/// A duration of at most ten minutes in milliseconds.
fn short_millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// A JSON object as pairs, in which no name comes twice.
struct Object<'a, V>(Vec<(Cow<'a, str>, V)>);

impl<V> Object<'_, V> {
    fn sorted_names(&mut self) -> impl Iterator<Item = &str> {
        self.0.sort_by(|one, two| one.0.cmp(&two.0));
        self.0.iter().map(|(name, _)| name.as_ref())
    }
}

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Object<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<V>(std::marker::PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Pairs<V> {
            type Value = Object<'de, V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object without repeated names")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs: Vec<(Cow<'de, str>, V)> = Vec::new();
                while let Some((Text(name), value)) = map.next_entry()? {
                    if pairs.iter().any(|(earlier, _)| *earlier == name) {
                        return Err(serde::de::Error::custom("a name comes twice"));
                    }
                    pairs.push((name, value));
                }
                Ok(Object(pairs))
            }
        }
        deserializer.deserialize_map(Pairs(std::marker::PhantomData))
    }
}

/// A JSON text, borrowed where it can be.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowed;
        impl<'de> Visitor<'de> for Borrowed {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON text")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrowed)
    }
}

/// A JSON array of anything: what module permissions map a module to.
struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;
        impl<'de> Visitor<'de> for Elements {
            type Value = Ignored;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Ignored)
            }
        }
        deserializer.deserialize_seq(Elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoSharing;
    impl Share for NoSharing {
        fn share(&self, value: &HeaderValue) -> (Arc<Kept>, u32) {
            (Arc::new(Kept::new(value, &Arc::default())), 0)
        }
    }

    const POLICY: LifePolicy = LifePolicy {
        ttl: Duration::from_mins(1),
        jitter: 0.1,
        skew: Duration::ZERO,
        refresh_ahead: 0.8,
        stale_if_error: Duration::ZERO,
    };

    /// A question and the answer that proves itself, to be bent by each test.
    struct Case {
        token: HeaderValue,
        user_id: Option<HeaderValue>,
        module_permissions: HeaderValue,
        claims: Option<Claims>,
        answer: Answer,
    }

    fn case() -> Case {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(PERMISSIONS, HeaderValue::from_static(r#"["a","b"]"#));
        headers.insert(
            MODULE_TOKENS,
            HeaderValue::from_static(r#"{"m-1":"x.y.z","_":"h.p.s"}"#),
        );
        headers.insert(TOKEN, HeaderValue::from_static("h.p.s"));
        headers.insert(USER_ID, HeaderValue::from_static("u1"));
        Case {
            token: HeaderValue::from_static("h.p.s"),
            user_id: None,
            module_permissions: HeaderValue::from_static(r#"{"m-1":["p"]}"#),
            claims: Some(Claims {
                user: Some("u1".into()),
                exp: None,
                kind: Kind::Ordinary,
            }),
            answer: Answer {
                status: StatusCode::ACCEPTED,
                headers,
                body: Bytes::new(),
            },
        }
    }

    impl Case {
        fn proven(&self) -> Result<Proven, NotStored> {
            prove(&self.question(), self.claims.as_ref(), &self.answer)
        }

        fn question(&self) -> Question<'_> {
            Question {
                token: Some(self.token.as_bytes()),
                user_id: self.user_id.as_ref().map(HeaderValue::as_bytes),
                module_permissions: Some(self.module_permissions.as_bytes()),
                ..Question::default()
            }
        }

        fn with(mut self, name: HeaderName, value: &'static str) -> Self {
            self.answer
                .headers
                .insert(name, HeaderValue::from_static(value));
            self
        }

        fn without(mut self, name: HeaderName) -> Self {
            self.answer.headers.remove(name);
            self
        }
    }

    fn keep(
        case: &Case,
        now: Now,
        policy: &LifePolicy,
        random: f64,
    ) -> Result<Decision, NotStored> {
        let asked = Asked {
            tick: 0,
            at: now.mono,
        };
        let claims = case.claims.as_ref().unwrap();
        Decision::keep(
            case.proven()?,
            claims,
            asked,
            now,
            policy,
            random,
            &NoSharing,
        )
    }

    const T0: Now = Now {
        mono: 1_000,
        wall: 1_000_000,
    };

    fn after(mono: i64, wall: i64) -> Now {
        Now {
            mono: T0.mono.saturating_add_signed(mono),
            wall: T0.wall.saturating_add_signed(wall),
        }
    }

    #[test]
    fn a_kept_answer_comes_back_byte_for_byte() {
        let plain = case();
        let own = {
            let mut case = case().with(MODULE_TOKENS, r#"{"_":"h.p.s"}"#);
            case.module_permissions = HeaderValue::from_static("{}");
            case
        };
        let odd = case()
            .with(MODULE_TOKENS, r#"{ "_" : "h.p.s", "m-1": "h.p.s" }"#)
            .with(TOKEN, "other.t.s")
            .with(HeaderName::from_static("x-more"), "1");
        let bare = case().without(TOKEN).without(CONTENT_TYPE);
        let named = {
            let mut case = case();
            case.user_id = Some(HeaderValue::from_static("u1"));
            case
        };
        let nobody = {
            let mut case = case().without(USER_ID);
            case.claims.as_mut().unwrap().user = None;
            case
        };

        for case in [plain, own, odd, bare, named, nobody] {
            let decision = keep(&case, T0, &POLICY, 0.0).unwrap();
            let asker = Asker::of(&case.question());

            assert_eq!(decision.answer(asker), case.answer.headers);
        }
    }

    #[test]
    fn every_doubt_keeps_an_answer_out() {
        let status = |status| {
            let mut case = case();
            case.answer.status = status;
            case
        };
        let mut cases: Vec<(NotStored, Case)> = [200, 201, 203, 204, 302, 401, 403, 500]
            .into_iter()
            .map(|code| {
                (
                    NotStored::Status,
                    status(StatusCode::from_u16(code).unwrap()),
                )
            })
            .collect();
        let mut body = case();
        body.answer.body = Bytes::from_static(b"x");
        cases.push((NotStored::Body, body));
        cases.push((NotStored::Body, case().with(CONTENT_LENGTH, "5")));
        cases.push((NotStored::SetCookie, case().with(SET_COOKIE, "a=b")));
        let mut twice = case();
        twice
            .answer
            .headers
            .append(TOKEN, HeaderValue::from_static("h.p.s"));
        cases.push((NotStored::DuplicateHeader, twice));
        for tokens in [
            "",
            "{",
            "[]",
            r#"{"_":"h.p.s"}"#,
            r#"{"m-1":"x","_":"h.p.t"}"#,
            r#"{"m-1":"x"}"#,
            r#"{"m-1":"x","m-2":"x","_":"h.p.s"}"#,
            r#"{"m-2":"x","_":"h.p.s"}"#,
            r#"{"m-1":7,"_":"h.p.s"}"#,
            r#"{"m-1":"x","_":"h.p.s","_":"evil"}"#,
            r#"{"m-1":"x","m-1":"y","_":"h.p.s"}"#,
            r#"{"m-1":"x","_":"h.p.s"} "x""#,
        ] {
            cases.push((NotStored::ModuleTokens, case().with(MODULE_TOKENS, tokens)));
        }
        cases.push((NotStored::ModuleTokens, case().without(MODULE_TOKENS)));
        for asked in ["", "[]", r#"{"m-1":"p"}"#, r#"{"m-1":[],"m-1":[]}"#] {
            let mut case = case();
            case.module_permissions = HeaderValue::from_static(asked);
            cases.push((NotStored::ModuleTokens, case));
        }
        for permissions in ["", "{}", "[1]", r#"["a""#, "a"] {
            cases.push((
                NotStored::Permissions,
                case().with(PERMISSIONS, permissions),
            ));
        }
        cases.push((NotStored::Permissions, case().without(PERMISSIONS)));
        cases.push((NotStored::UserId, case().with(USER_ID, "u2")));
        cases.push((NotStored::UserId, case().without(USER_ID)));
        let mut header_wins = case();
        header_wins.user_id = Some(HeaderValue::from_static("u9"));
        cases.push((NotStored::UserId, header_wins));
        let mut nobody = case();
        nobody.claims.as_mut().unwrap().user = None;
        cases.push((NotStored::UserId, nobody));
        let mut unreadable = case();
        unreadable.claims = None;
        cases.push((NotStored::Token, unreadable));
        let mut one_shot = case();
        one_shot.claims.as_mut().unwrap().kind = Kind::OneShot;
        cases.push((NotStored::OneShot, one_shot));
        let mut large = case();
        let long = format!("[\"{}\"]", "x".repeat(LARGEST));
        large
            .answer
            .headers
            .insert(PERMISSIONS, long.parse().unwrap());
        cases.push((NotStored::TooLarge, large));

        for (reason, case) in cases {
            assert_eq!(
                case.proven().err(),
                Some(reason),
                "{:?}",
                case.answer.headers
            );
        }
    }

    #[test]
    fn the_life_of_a_decision_is_absolute_on_both_clocks() {
        let decision = keep(&case(), T0, &POLICY, 0.0).unwrap();

        for (now, freshness) in [
            (after(0, 0), Freshness::Fresh),
            (after(47_999, 47_999), Freshness::Fresh),
            (after(48_000, 48_000), Freshness::Late),
            (after(59_999, 59_999), Freshness::Late),
            (after(60_000, 59_999), Freshness::Gone),
            (after(1, 60_000), Freshness::Gone),
            (after(1, 7_200_000), Freshness::Gone),
            (after(1, -1), Freshness::Gone),
            (after(-1, 1), Freshness::Gone),
        ] {
            assert_eq!(decision.freshness(now, &POLICY), freshness, "{now:?}");
        }
    }

    #[test]
    fn a_token_s_expiry_ends_the_life_by_the_wall_clock() {
        let mut case = case();
        case.claims.as_mut().unwrap().exp = Some(T0.wall / 1_000 + 3);
        let decision = keep(&case, T0, &POLICY, 0.0).unwrap();

        assert_eq!(
            decision.freshness(after(1_000, 2_999), &POLICY),
            Freshness::Fresh
        );
        assert_eq!(
            decision.freshness(after(1_000, 3_000), &POLICY),
            Freshness::Gone
        );
        let skewed = LifePolicy {
            skew: Duration::from_secs(3),
            ..POLICY
        };
        assert_eq!(
            keep(&case, T0, &skewed, 0.0).err(),
            Some(NotStored::Expired)
        );
    }

    #[test]
    fn jitter_only_shortens_and_zero_ttl_keeps_nothing() {
        let shortest = keep(&case(), T0, &POLICY, 0.999_999).unwrap();
        let zero = LifePolicy {
            ttl: Duration::ZERO,
            ..POLICY
        };

        assert_eq!(
            shortest.freshness(after(54_001, 54_001), &POLICY),
            Freshness::Gone
        );
        assert_eq!(
            shortest.freshness(after(53_999, 53_999), &POLICY),
            Freshness::Late
        );
        assert_eq!(
            keep(&case(), T0, &zero, 0.5).err(),
            Some(NotStored::TtlZero)
        );
    }

    #[test]
    fn stale_if_error_ends_at_its_limit_and_at_the_token_s_expiry() {
        let policy = LifePolicy {
            stale_if_error: Duration::from_secs(30),
            ..POLICY
        };
        let mut case = case();
        let decision = keep(&case, T0, &policy, 0.0).unwrap();
        case.claims.as_mut().unwrap().exp = Some(T0.wall / 1_000 + 70);
        let expiring = keep(&case, T0, &policy, 0.0).unwrap();

        assert_eq!(
            decision.freshness(after(60_000, 60_000), &policy),
            Freshness::Stale
        );
        assert_eq!(
            decision.freshness(after(89_999, 89_999), &policy),
            Freshness::Stale
        );
        assert_eq!(
            decision.freshness(after(90_000, 89_999), &policy),
            Freshness::Gone
        );
        assert_eq!(
            decision.freshness(after(61_000, 90_000), &policy),
            Freshness::Gone
        );
        assert_eq!(
            expiring.freshness(after(69_999, 69_999), &policy),
            Freshness::Stale
        );
        assert_eq!(
            expiring.freshness(after(69_999, 70_000), &policy),
            Freshness::Gone
        );
    }

    #[test]
    fn a_decision_is_no_larger_than_two_cache_lines() {
        // With the two counts of the `Arc` around it.
        assert!(
            size_of::<Decision>() + 16 <= 128,
            "{}",
            size_of::<Decision>()
        );
    }

    #[test]
    fn one_refresh_is_claimed_once() {
        let decision = keep(&case(), T0, &POLICY, 0.0).unwrap();

        assert!(decision.claim_refresh());
        assert!(!decision.claim_refresh());
    }

    #[test]
    fn debug_shows_no_token() {
        let case = case();
        let decision = keep(&case, T0, &POLICY, 0.0).unwrap();
        let shown = format!(
            "{:?} {:?} {:?}",
            decision,
            case.proven().unwrap(),
            case.answer
        );

        assert!(
            !shown.contains("h.p.s") && !shown.contains("x.y.z"),
            "{shown}"
        );
    }
}
