//! What TLS trusts when Okapi is reached by https: the system's certificates plus one file of the operator's.
//!
//! An image without system certificates is normal (ours has none): that is no error until nothing at all is trusted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Why no TLS configuration could be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// The file named by the operator cannot be read, or is not PEM.
    #[error("CA file {path}: {source}; it must hold certificates in PEM form")]
    CaFile {
        /// The file as named.
        path: PathBuf,
        /// What was wrong.
        source: rustls::pki_types::pem::Error,
    },
    /// The file is PEM, but holds no certificate.
    #[error("CA file {path} holds no certificate; it must hold at least one in PEM form")]
    NoCertificate {
        /// The file as named.
        path: PathBuf,
    },
    /// A certificate of the file cannot serve as a trust anchor.
    #[error("CA file {path}: certificate {number} cannot be trusted: {source}")]
    BadCertificate {
        /// The file as named.
        path: PathBuf,
        /// Which one, counted from 1.
        number: usize,
        /// What was wrong.
        source: rustls::Error,
    },
    /// Neither the system nor the operator names anything to trust.
    #[error(
        "no certificate authority is known: this system has no certificates of its own (an image may have none); name a PEM file with --okapi-ca-file"
    )]
    NothingTrusted,
    /// The provider supports none of the protocol versions.
    #[error("TLS cannot be set up: {0}")]
    Protocol(#[source] rustls::Error),
}

/// The configuration for an https Okapi: ring, TLS 1.2 and 1.3, system certificates and those of `ca_file`.
///
/// # Errors
/// When `ca_file` cannot be used, or when nothing at all would be trusted.
pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, TlsError> {
    let mut roots = system_roots();
    if let Some(path) = ca_file {
        add_file(&mut roots, path)?;
    }
    if roots.is_empty() {
        return Err(TlsError::NothingTrusted);
    }
    with_roots(roots)
}

/// The configuration for a plain http Okapi: the client wants one all the same, and it trusts nobody.
///
/// # Errors
/// When the provider supports none of the protocol versions.
pub(crate) fn no_trust() -> Result<ClientConfig, TlsError> {
    with_roots(RootCertStore::empty())
}

fn with_roots(roots: RootCertStore) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Protocol)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// Single broken certificates of the system are its own affair: what is usable is used.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), TlsError> {
    let unreadable = |source| TlsError::CaFile {
        path: path.to_owned(),
        source,
    };
    let mut number = 0;
    for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
        number += 1;
        roots
            .add(certificate.map_err(unreadable)?)
            .map_err(|source| TlsError::BadCertificate {
                path: path.to_owned(),
                number,
                source,
            })?;
    }
    if number == 0 {
        return Err(TlsError::NoCertificate {
            path: path.to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn a_certificate_of_the_operators_file_is_trusted() {
        let signed = rcgen::generate_simple_self_signed(vec!["okapi".to_owned()]).unwrap();
        let file = file(&signed.cert.pem());
        let mut roots = RootCertStore::empty();

        add_file(&mut roots, file.path()).unwrap();

        assert_eq!(roots.len(), 1);
    }

    #[test]
    fn a_file_without_a_certificate_is_refused_by_name() {
        let file = file("-----BEGIN NOTHING-----\n-----END NOTHING-----\n");

        let error = add_file(&mut RootCertStore::empty(), file.path()).unwrap_err();

        let text = error.to_string();
        assert!(text.contains(&file.path().display().to_string()), "{text}");
        assert!(text.contains("no certificate"), "{text}");
    }

    #[test]
    fn a_missing_file_is_refused_by_name() {
        let error =
            add_file(&mut RootCertStore::empty(), Path::new("/nowhere/ca.pem")).unwrap_err();

        assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
    }
}
