//! The authority: the key that signs all certificates of an instance.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use ring::digest::{SHA256, digest};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use time::OffsetDateTime;

use crate::{KeyError, Role};

const DAY: Duration = Duration::from_secs(86_400);
/// The maximum lifetime of an instance.
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The validity of the certificates of roles. A node renews them after half of it.
pub(crate) const ROLE_LIFE: Duration = Duration::from_secs(365 * 86_400);

/// The validity period of a certificate, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    pub from_s: u64,
    pub until_s: u64,
}

impl Validity {
    /// Valid from yesterday on, because clocks differ.
    #[must_use]
    pub fn starting_now(life: Duration) -> Self {
        let now = UnixTime::now().as_secs();
        Self { from_s: now.saturating_sub(DAY.as_secs()), until_s: now + life.as_secs() }
    }
}

/// A key pair and its certificate, which all members of a cluster trust.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

fn moment(seconds: u64) -> Result<OffsetDateTime, KeyError> {
    let seconds = i64::try_from(seconds).ok();
    let moment = seconds.and_then(|it| OffsetDateTime::from_unix_timestamp(it).ok());
    moment.ok_or_else(|| KeyError::Make("the clock shows an impossible time".to_owned()))
}

fn named(name: &str, validity: Validity) -> Result<CertificateParams, KeyError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = moment(validity.from_s)?;
    params.not_after = moment(validity.until_s)?;
    Ok(params)
}

/// Identical for all authorities except for the times, which signing ignores.
fn authority_params(validity: Validity) -> Result<CertificateParams, KeyError> {
    let mut params = named("Starling authority", validity)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

impl Authority {
    /// Creates a new authority.
    pub fn make() -> Result<Self, KeyError> {
        let key = KeyPair::generate()?;
        let validity = Validity::starting_now(AUTHORITY_LIFE);
        let certificate = authority_params(validity)?.self_signed(&key)?;
        let pem = key.serialize_pem() + &certificate.pem();
        Self::of(key, certificate.der().clone(), pem)
    }

    /// Parses the text of its file: the key, then the certificate.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let key = KeyPair::from_pem(pem)?;
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| KeyError::Make(format!("no certificate: {error}")))?;
        Self::of(key, certificate, pem.to_owned())
    }

    fn of(
        key: KeyPair,
        certificate: CertificateDer<'static>,
        pem: String,
    ) -> Result<Self, KeyError> {
        let params = authority_params(Validity::starting_now(AUTHORITY_LIFE))?;
        Ok(Self { issuer: Issuer::new(params, key), certificate, pem })
    }

    /// Key and certificate. With this text one can issue any certificate of the cluster.
    #[must_use]
    pub fn to_pem(&self) -> &str {
        &self.pem
    }

    /// The certificate alone, which is no secret.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        let start = self.pem.find("-----BEGIN CERTIFICATE-----").unwrap_or(self.pem.len());
        self.pem[start..].to_owned()
    }

    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        fingerprint(&self.certificate)
    }

    /// The text of a bundle: a new key, its certificate for a role, and the authority's
    /// certificate.
    pub fn issue(&self, role: Role, validity: Validity) -> Result<String, KeyError> {
        let key = KeyPair::generate()?;
        let mut params = named(role.host(), validity)?;
        params.subject_alt_names = vec![rcgen::SanType::DnsName(role.host().try_into()?)];
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if role == Role::Node {
            // Only nodes may act as servers.
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(key.serialize_pem() + &certificate.pem() + &self.certificate_pem())
    }
}

pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let hash = digest(&SHA256, certificate);
    hash.as_ref().try_into().expect("a SHA-256 has 32 bytes")
}
