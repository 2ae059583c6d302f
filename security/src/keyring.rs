/*!
The key files of an instance, mode 0600 in a directory of mode 0700. Nodes create them; clients read
their own.

```text
D/keys/authority.pem   key and certificate that sign the others
D/keys/ca.pem          that certificate alone
D/keys/node.pem        key, certificate, the authority's certificate; the same for each role
D/keys/client.pem
D/keys/observer.pem
D/keys/tokens/         unused tokens for machines that do not share the directory
```
A bundle is one file, so a key and its certificate always belong together. An observer needs only
its own bundle.
*/

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;

use crate::authority::{ROLE_LIFE, fingerprint};
use crate::files::{create_once, make_private_dir, read_private, replace};
use crate::{Authority, KeyError, Role, Token, Tokens, Validity, tls};

/// A key, its certificate, and the certificate of the authority that signed it.
pub struct Bundle {
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) authority: CertificateDer<'static>,
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bundle").finish_non_exhaustive()
    }
}

impl Clone for Bundle {
    fn clone(&self) -> Self {
        let (certificate, authority) = (self.certificate.clone(), self.authority.clone());
        Self { key: self.key.clone_key(), certificate, authority }
    }
}

impl Bundle {
    /// Parses the text of a file.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|e| e.to_string())?;
        let mut certificates = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            certificates.push(certificate.map_err(|e| e.to_string())?);
        }
        let [certificate, authority] = <[_; 2]>::try_from(certificates)
            .map_err(|_| "it should have the certificates of a role and of its authority")?;
        Ok(Self { key, certificate, authority })
    }

    /// Reads a file that only its owner can read.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        Self::from_pem(&read_private(path)?).map_err(|what| KeyError::damaged(path, what))
    }

    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        fingerprint(&self.authority)
    }

    /// True if the certificate is valid at this time.
    fn holds_at(&self, moment: UnixTime) -> bool {
        let Ok(roots) = tls::roots(&self.authority) else { return false };
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), tls::provider()).build();
        verifier.is_ok_and(|it| it.verify_client_cert(&self.certificate, &[], moment).is_ok())
    }
}

/// The key directory of one instance.
#[derive(Clone, Debug)]
pub struct Keyring {
    dir: PathBuf,
}

impl Keyring {
    /// The key directory of the instance in `dir`. This neither reads nor creates files.
    #[must_use]
    pub fn of_instance(dir: &Path) -> Self {
        Self { dir: dir.join("keys") }
    }

    #[must_use]
    pub fn path(&self, role: Role) -> PathBuf {
        self.dir.join(format!("{role}.pem"))
    }
    fn authority_path(&self) -> PathBuf {
        self.dir.join("authority.pem")
    }
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        Tokens::new(self.dir.join("tokens"))
    }
    #[must_use]
    pub fn has_authority(&self) -> bool {
        self.authority_path().exists()
    }

    pub fn authority(&self) -> Result<Authority, KeyError> {
        let path = self.authority_path();
        let pem = read_private(&path)?;
        Authority::from_pem(&pem).map_err(|error| KeyError::damaged(&path, error))
    }

    /// Stores an authority that this machine received for a token. An existing one must be the
    /// same.
    pub fn adopt(&self, token: &Token, pem: &str) -> Result<(), KeyError> {
        if Authority::from_pem(pem)?.fingerprint() != token.fingerprint {
            return Err(KeyError::OtherCluster);
        }
        make_private_dir(&self.dir)?;
        create_once(&self.authority_path(), pem)?;
        self.belongs_to(token)
    }

    /// Checks that the existing keys belong to the cluster of a token.
    pub fn belongs_to(&self, token: &Token) -> Result<(), KeyError> {
        match self.authority()?.fingerprint() == token.fingerprint {
            true => Ok(()),
            false => Err(KeyError::OtherCluster),
        }
    }

    /// Creates missing keys and renews certificates that expire soon. The first caller creates the
    /// authority. Returns the bundle of the node.
    pub fn prepare(&self) -> Result<Bundle, KeyError> {
        make_private_dir(&self.dir)?;
        let has_node_key = self.path(Role::Node).exists();
        if !self.has_authority() && !has_node_key {
            create_once(&self.authority_path(), Authority::make()?.to_pem())?;
        }
        if self.has_authority() {
            let authority = self.authority()?;
            create_once(&self.dir.join("ca.pem"), &authority.certificate_pem())?;
            Role::ALL.into_iter().try_for_each(|role| self.renew(&authority, role))?;
        }
        self.read(Role::Node)
    }

    fn renew(&self, authority: &Authority, role: Role) -> Result<(), KeyError> {
        let path = self.path(role);
        let now = UnixTime::now();
        let half_its_life = Duration::from_secs(now.as_secs()) + ROLE_LIFE / 2;
        let later = UnixTime::since_unix_epoch(half_its_life);
        if path.exists() {
            let bundle = Bundle::read(&path)?;
            let is_ours = bundle.fingerprint() == authority.fingerprint();
            // A certificate that is not valid yet was made while the clock was ahead.
            if is_ours && bundle.holds_at(now) && bundle.holds_at(later) {
                return Ok(());
            }
            return replace(&path, &authority.issue(role, Validity::starting_now(ROLE_LIFE))?);
        }
        create_once(&path, &authority.issue(role, Validity::starting_now(ROLE_LIFE))?)
    }

    pub fn read(&self, role: Role) -> Result<Bundle, KeyError> {
        Bundle::read(&self.path(role))
    }

    /// The bundle for a client: the most powerful role with a file here.
    pub fn read_for_client(&self) -> Result<Bundle, KeyError> {
        let observer_only = !self.path(Role::Client).exists() && self.path(Role::Observer).exists();
        self.read(if observer_only { Role::Observer } else { Role::Client })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_first_node_makes_the_keys_and_they_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let ring = Keyring::of_instance(dir.path());
        let first = ring.prepare().unwrap();
        let again = ring.prepare().unwrap();
        assert_eq!(first.certificate, again.certificate);
        for entry in fs::read_dir(dir.path().join("keys")).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", entry.path().display());
            assert!(!entry.file_name().to_string_lossy().starts_with('.'));
        }
        let mode = fs::metadata(dir.path().join("keys")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700);
        let client = ring.path(Role::Client);
        fs::set_permissions(&client, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(ring.read(Role::Client), Err(KeyError::Mode { mode: 0o640, .. })));
    }

    #[test]
    fn many_that_are_first_agree() {
        let dir = tempfile::tempdir().unwrap();
        let ring = Keyring::of_instance(dir.path());
        let made: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| ring.prepare())).collect();
            threads.into_iter().map(|it| it.join().unwrap().unwrap().fingerprint()).collect()
        });
        assert!(made.iter().all(|it| *it == ring.authority().unwrap().fingerprint()));
    }

    #[test]
    fn a_certificate_that_ends_soon_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let ring = Keyring::of_instance(dir.path());
        ring.prepare().unwrap();
        let authority = ring.authority().unwrap();
        let soon = Validity::starting_now(ROLE_LIFE / 4);
        replace(&ring.path(Role::Node), &authority.issue(Role::Node, soon).unwrap()).unwrap();
        let old = ring.read(Role::Node).unwrap();
        let new = ring.prepare().unwrap();
        assert!(old.certificate != new.certificate);
        assert_eq!(old.fingerprint(), new.fingerprint());
        let now = UnixTime::now().as_secs();
        let early = Validity { from_s: now + 3600, until_s: now + ROLE_LIFE.as_secs() };
        replace(&ring.path(Role::Node), &authority.issue(Role::Node, early).unwrap()).unwrap();
        assert!(ring.prepare().unwrap().holds_at(UnixTime::now()), "the clock was ahead");
    }

    #[test]
    fn a_client_without_its_key_is_an_observer() {
        let dir = tempfile::tempdir().unwrap();
        let ring = Keyring::of_instance(dir.path());
        ring.prepare().unwrap();
        let role = |ring: &Keyring| tls::role_of(&ring.read_for_client().unwrap().certificate);
        assert_eq!(role(&ring), Some(Role::Client));
        fs::remove_file(ring.path(Role::Client)).unwrap();
        assert_eq!(role(&ring), Some(Role::Observer));
    }
}
