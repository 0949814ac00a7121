//! Asks the admin port of a running process: for `healthcheck` and `purge`, from a shell in its pod or another one.

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;

/// How long an admin port may take.
const TIMEOUT: Duration = Duration::from_secs(2);
const LARGEST_ANSWER: usize = 64 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The address is none.
    #[error("'{0}' is wrong; wanted: an http URL such as http://127.0.0.1:8072")]
    Url(String),
    /// Nobody listens there, or the connection broke.
    #[error("{address}: {source}")]
    Unreachable {
        /// Where.
        address: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It took too long.
    #[error("{0}: no answer within 2s")]
    Timeout(String),
}

/// The base URL of the admin port that listens on `address`, as this machine reaches it.
pub fn own_url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}

/// A path segment with its slash, percent-encoded where it has to be (RFC 3986, 3.3).
pub fn path_segment(text: &str) -> String {
    let mut segment = String::from("/");
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            segment.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(segment, "%{byte:02X}");
        }
    }
    segment
}

/// One request to `path` below `base`; status and text of the answer.
///
/// # Errors
/// [`LocalError`].
pub async fn ask(
    base: &str,
    method: Method,
    path: &str,
    bearer: Option<&str>,
) -> Result<(StatusCode, String), LocalError> {
    let wrong = || LocalError::Url(base.to_owned());
    let uri: Uri = base.parse().map_err(|_| wrong())?;
    let authority = uri.authority().cloned().ok_or_else(wrong)?;
    if uri.scheme() != Some(&Scheme::HTTP) {
        return Err(wrong());
    }
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(|_| LocalError::Url(path.to_owned()))?;
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?;
    request.headers_mut().insert(HOST, host);
    if let Some(bearer) = bearer {
        let mut value = HeaderValue::from_str(&format!("Bearer {bearer}")).map_err(|_| wrong())?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let address = format!(
        "{}:{}",
        authority.host(),
        authority.port_u16().unwrap_or(80)
    );
    match tokio::time::timeout(TIMEOUT, exchange(&address, request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(LocalError::Unreachable { address, source }),
        Err(_) => Err(LocalError::Timeout(address)),
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(
    address: &str,
    request: Request<Empty<Bytes>>,
) -> Result<(StatusCode, String), Failure> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST_ANSWER)
        .collect()
        .await?
        .to_bytes();
    connection.abort();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
