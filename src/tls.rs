//! What TLS trusts when we are the client, of mod-authtoken or of Okapi: the system's certificates plus one file of the
//! operator's.
//!
//! An image without system certificates is normal (ours has none): that is no error until nothing at all is trusted.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the operator names the file, for messages.
pub(crate) type Setting = &'static str;

/// Why no TLS configuration could be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read, or is not PEM.
    #[error("{setting}: {path}: {source}; it must hold certificates in PEM form")]
    CaFile {
        /// What names the file.
        setting: Setting,
        /// The file as named.
        path: PathBuf,
        /// What was wrong.
        source: rustls::pki_types::pem::Error,
    },
    /// The file is PEM, but holds no certificate.
    #[error("{setting}: {path} holds no certificate; it must hold at least one in PEM form")]
    NoCertificate {
        /// What names the file.
        setting: Setting,
        /// The file as named.
        path: PathBuf,
    },
    /// A certificate of the file cannot serve as a trust anchor.
    #[error("{setting}: {path}: certificate {number} cannot be trusted: {source}")]
    BadCertificate {
        /// What names the file.
        setting: Setting,
        /// The file as named.
        path: PathBuf,
        /// Which one, counted from 1.
        number: usize,
        /// What was wrong.
        source: rustls::Error,
    },
    /// Neither the system nor the operator names anything to trust.
    #[error(
        "the address is https, but no certificate authority is known: this system has no certificates of its own (an image may have none); name a PEM file with {setting}"
    )]
    NothingTrusted {
        /// What would name a file.
        setting: Setting,
    },
    /// The provider supports none of the protocol versions.
    #[error("TLS cannot be set up: {0}")]
    Protocol(#[source] rustls::Error),
}

/// The configuration of a client: ring, TLS 1.2 and 1.3. For plain http it trusts only what `ca_file` holds, for https the
/// system's certificates too, and then something has to be trusted.
///
/// # Errors
/// When `ca_file`, which `setting` names, cannot be used, or when nothing at all would be trusted.
pub(crate) fn client_config(
    https: bool,
    ca_file: Option<&Path>,
    setting: Setting,
) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    if https {
        // Single broken certificates of the system are its own affair: what is usable is used.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if let Some(path) = ca_file {
        add_file(&mut roots, path, setting)?;
    }
    if https && roots.is_empty() {
        return Err(TlsError::NothingTrusted { setting });
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Protocol)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn add_file(roots: &mut RootCertStore, path: &Path, setting: Setting) -> Result<(), TlsError> {
    let unreadable = |source| TlsError::CaFile {
        setting,
        path: path.to_owned(),
        source,
    };
    let mut number = 0;
    for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
        number += 1;
        roots
            .add(certificate.map_err(unreadable)?)
            .map_err(|source| TlsError::BadCertificate {
                setting,
                path: path.to_owned(),
                number,
                source,
            })?;
    }
    if number == 0 {
        return Err(TlsError::NoCertificate {
            setting,
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

    /// What is said of a file with this content.
    fn told(content: &str) -> String {
        let file = file(content);
        let error = client_config(true, Some(file.path()), "--ca-file").unwrap_err();
        let text = error.to_string();
        let whose = format!("--ca-file: {}", file.path().display());
        assert!(text.starts_with(&whose), "{text}");
        text
    }

    #[test]
    fn a_certificate_of_the_operators_file_is_trusted() {
        let signed = rcgen::generate_simple_self_signed(vec!["okapi".to_owned()]).unwrap();
        let file = file(&signed.cert.pem());
        let mut roots = RootCertStore::empty();

        add_file(&mut roots, file.path(), "--ca-file").unwrap();

        assert_eq!(roots.len(), 1);
    }

    #[test]
    fn a_file_that_is_of_no_use_is_refused_by_name() {
        let nothing = told("-----BEGIN NOTHING-----\n-----END NOTHING-----\n");
        assert!(nothing.contains("no certificate"), "{nothing}");

        let broken = told("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        assert!(broken.contains("certificate 1 cannot be"), "{broken}");

        let cut = told("-----BEGIN CERTIFICATE-----\nAAAA\n");
        assert!(cut.contains("in PEM form"), "{cut}");
    }

    #[test]
    fn a_missing_file_is_refused_by_name() {
        let path = Path::new("/nowhere/ca.pem");

        let error = client_config(false, Some(path), "--ca-file").unwrap_err();

        let text = error.to_string();
        assert!(text.starts_with("--ca-file: /nowhere/ca.pem"), "{text}");
    }

    #[test]
    fn plain_http_needs_nothing_to_trust() {
        assert!(client_config(false, None, "--ca-file").is_ok());
    }
}
