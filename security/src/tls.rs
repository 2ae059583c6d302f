//! The TLS settings of all connections: version 1.3 only, certificates on both sides.

use std::sync::{Arc, LazyLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};

use crate::authority::fingerprint;
use crate::{Bundle, Role, Token};

/// The protocols over a connection (ALPN): gRPC, objects, and the exchange of a token for keys.
pub const GRPC: &[u8] = b"h2";
pub const DATA: &[u8] = b"starling-data/1";
pub const JOIN: &[u8] = b"starling-join/1";

static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::clone(&PROVIDER)
}

pub(crate) fn roots(authority: &CertificateDer<'static>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    Ok(roots)
}

/// The host name that clients expect in a node's certificate.
#[must_use]
pub fn node_name() -> ServerName<'static> {
    ServerName::try_from(Role::Node.host()).expect("a name of ours is a name")
}

/// The role in a verified certificate.
#[must_use]
pub fn role_of(certificate: &CertificateDer<'_>) -> Option<Role> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    Role::ALL.into_iter().find(|role| {
        let name = ServerName::try_from(role.host()).expect("a name of ours is a name");
        parsed.verify_is_valid_for_subject_name(&name).is_ok()
    })
}

/// Each connection has one protocol and no session resumption.
fn finish_server(mut config: ServerConfig, protocols: &[&[u8]]) -> Arc<ServerConfig> {
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// The server side: the client must present a certificate of the same authority.
pub fn server(bundle: &Bundle, protocol: &[u8]) -> Result<Arc<ServerConfig>, Error> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)?
        .with_client_cert_verifier(client_verifier(bundle)?)
        .with_single_cert(vec![bundle.certificate.clone()], bundle.key.clone_key())?;
    Ok(finish_server(config, &[protocol]))
}

fn client_verifier(bundle: &Bundle) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let roots = Arc::new(roots(&bundle.authority)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
    Ok(Arc::new(Alone(verifier.map_err(|error| Error::General(error.to_string()))?)))
}

/// Accepts only a certificate that the authority signed directly, and ignores the rest of the
/// chain. Otherwise an unauthenticated client could send a chain that takes very long to search.
#[derive(Debug)]
struct Alone(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Alone {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.verify_client_cert(end_entity, &[], now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The server side for a client with a token and no certificate. It sends the authority's
/// certificate, because the token contains its fingerprint.
pub fn server_for_tokens(bundle: &Bundle) -> Result<Arc<ServerConfig>, Error> {
    let chain = vec![bundle.certificate.clone(), bundle.authority.clone()];
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)?
        .with_no_client_auth()
        .with_single_cert(chain, bundle.key.clone_key())?;
    Ok(finish_server(config, &[JOIN]))
}

/// The client side: accepts only a node of the same authority.
pub fn client(bundle: &Bundle, protocol: &[u8]) -> Result<Arc<ClientConfig>, Error> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)?
        .with_root_certificates(roots(&bundle.authority)?)
        .with_client_auth_cert(vec![bundle.certificate.clone()], bundle.key.clone_key())?;
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// The client side with only a token: accepts a node of the token's authority.
pub fn client_with_token(token: &Token) -> Result<Arc<ClientConfig>, Error> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { fingerprint: token.fingerprint }))
        .with_no_client_auth();
    config.alpn_protocols = vec![JOIN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Accepts a node that presents the authority with this fingerprint and a certificate signed by it.
#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; 32],
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = intermediates.iter().find(|it| fingerprint(it) == self.fingerprint);
        let authority =
            authority.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let roots = Arc::new(roots(&authority.clone().into_owned())?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}

/// Explains a connection error to a user; `None` if it does not concern certificates.
#[must_use]
pub fn explain(error: &Error) -> Option<String> {
    use rustls::AlertDescription as Alert;
    Some(match error {
        Error::AlertReceived(Alert::CertificateRequired | Alert::NoCertificate) => {
            "it wants a certificate".to_owned()
        }
        // This alert also reports a certificate that is not valid yet.
        Error::AlertReceived(Alert::CertificateExpired) => {
            "by its clock our certificate has ended or not begun: compare the clocks; a node that \
             starts makes new certificates"
                .to_owned()
        }
        Error::AlertReceived(
            Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::DecryptError,
        ) => "it does not trust our certificate".to_owned(),
        // All authorities have the same name, so the signature reveals one of another cluster.
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "it belongs to another cluster: its certificate is not of our authority".to_owned(),
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "its certificate has expired: start it again".to_owned(),
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "its certificate is not valid yet: compare the clocks".to_owned(),
        Error::InvalidCertificate(reason) => format!("its certificate is not good: {reason}"),
        Error::InvalidMessage(_) => "what listens there does not speak TLS".to_owned(),
        _ => return None,
    })
}

/// As [`explain`], for an error inside a chain of errors.
#[must_use]
pub fn explain_chain(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<Error>() {
            return explain(found);
        }
        // The inner error of an IO error is not always its source.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(found) = inner.and_then(|it| it.downcast_ref::<Error>()) {
            return explain(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;
    use crate::{Authority, Validity};

    /// An unknown certificate, and `count` others, each of which may have signed it and all others.
    fn maze(count: usize) -> (CertificateDer<'static>, Vec<CertificateDer<'static>>) {
        let mut leaf = CertificateParams::default();
        leaf.distinguished_name.push(DnType::CommonName, "a maze");
        let mut params = leaf.clone();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = Issuer::new(params.clone(), KeyPair::generate().unwrap());
        let sign = |params: &CertificateParams| {
            let certificate = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
            certificate.der().clone()
        };
        (sign(&leaf), (0..count).map(|_| sign(&params)).collect())
    }

    #[test]
    fn extra_certificates_of_a_peer_are_not_searched() {
        let authority = Authority::make().unwrap();
        let pem = authority.issue(Role::Node, Validity::starting_now(HOUR)).unwrap();
        let bundle = Bundle::from_pem(&pem).unwrap();
        let verifier = client_verifier(&bundle).unwrap();
        let (leaf, sent) = maze(40);
        // A search would end only at its built-in limit, after hundreds of thousands of steps.
        let error = verifier.verify_client_cert(&leaf, &sent, UnixTime::now()).unwrap_err();
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(error, unknown);
        // Other clients send a whole bundle: certificate and authority.
        let sent = [bundle.authority.clone()];
        verifier.verify_client_cert(&bundle.certificate, &sent, UnixTime::now()).unwrap();
    }

    const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

    #[test]
    fn errors_of_time_say_to_look_at_the_clocks() {
        let alert = rustls::AlertDescription::CertificateExpired;
        for error in
            [Error::AlertReceived(alert), Error::InvalidCertificate(CertificateError::NotValidYet)]
        {
            let text = explain(&error).unwrap();
            assert!(text.contains("certificate") && text.contains("clocks"), "{text}");
        }
    }
}
