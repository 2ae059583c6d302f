//! The instance directory for a client: the nodes, their addresses, and the keys.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proto::limits;
use security::{Bundle, Dialer, KeyError, Keyring, Role};
use serde::Deserialize;

use crate::ClientError;

/// The maximum size of the name of a host in a description of a node.
const HOST_NAME_BYTES_MAX: usize = 64;

/// The content of `cluster.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct ClusterFile {
    /// The version of the directory.
    pub format: u32,
    /// The random number of the cluster, as text.
    pub cluster: String,
    /// The number of nodes when the cluster was made.
    pub nodes: u32,
    /// The number of partitions of records.
    pub partitions: u32,
    /// Replicas of each partition when the cluster was made.
    pub replicas: u32,
    /// Connections are neither encrypted nor authenticated.
    #[serde(default)]
    pub insecure: bool,
}

/// The content of `nodes/<id>/address.json`, which exists while the node listens (or after it was
/// killed).
#[derive(Clone, Debug, Deserialize)]
pub struct AddressFile {
    /// The version of the directory.
    pub format: u32,
    /// The number of the node.
    pub node: u32,
    /// The number of its starts.
    pub incarnation: u32,
    /// `ip:port`; several addresses are separated by commas.
    pub address: String,
    /// Its process on its machine.
    pub pid: u32,
    /// Tasks of one cpu that it runs at once.
    pub slots: u32,
    /// The name of its machine.
    #[serde(default)]
    pub host: String,
}

/// One instance's directory.
#[derive(Clone, Debug)]
pub struct Instance {
    dir: PathBuf,
}

impl Instance {
    /// Names a directory. Reads nothing.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }
    /// Its path.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The dialer for its nodes, with the keys in the directory: those of a client or of an
    /// observer. Keys that other users can read are refused.
    pub fn dialer(&self) -> Result<Dialer, ClientError> {
        if self.cluster()?.insecure {
            return Ok(Dialer::insecure());
        }
        let bundle = Keyring::of_instance(&self.dir).read_for_client();
        let bundle = bundle.map_err(|error| match error {
            KeyError::Mode { path, mode } => ClientError::KeyMode { path, mode },
            KeyError::Damaged { .. } => ClientError::BadKey(error.to_string()),
            error => self.missing(&error.to_string()),
        })?;
        Dialer::new(&bundle).map_err(|error| self.missing(&format!("bad keys: {error}")))
    }

    /// The dialer with the key of an observer, with which nodes answer questions only. Without
    /// that key as [`Self::dialer`].
    pub fn observer(&self) -> Result<Dialer, ClientError> {
        let path = Keyring::of_instance(&self.dir).path(Role::Observer);
        if self.cluster()?.insecure || !path.exists() {
            return self.dialer();
        }
        let bundle = Bundle::read(&path).map_err(|error| match error {
            KeyError::Mode { path, mode } => ClientError::KeyMode { path, mode },
            error => ClientError::BadKey(error.to_string()),
        })?;
        Dialer::new(&bundle).map_err(|error| self.missing(&format!("bad keys: {error}")))
    }

    /// The content of `cluster.json`.
    pub fn cluster(&self) -> Result<ClusterFile, ClientError> {
        let path = self.dir.join("cluster.json");
        let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => self.missing("it has no instance"),
            _ => ClientError::file(&path, &error),
        })?;
        let damaged = |reason: String| {
            let reason = if text.is_empty() { "it is empty".to_owned() } else { reason };
            ClientError::File { path: path.clone(), reason: format!("damaged: {reason}") }
        };
        let cluster: ClusterFile =
            serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if cluster.format != limits::FORMAT_VERSION {
            let reason = format!("format {} is not known to this version", cluster.format);
            return Err(ClientError::File { path, reason });
        }
        Ok(cluster)
    }

    /// The nodes with an address file, by id. Unreadable files are left out: a node replaces its
    /// file by rename, so a broken one belongs to no running node.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<u32, AddressFile> {
        let Ok(entries) = std::fs::read_dir(self.dir.join("nodes")) else {
            return BTreeMap::new();
        };
        let read = |path: PathBuf| {
            let text = std::fs::read_to_string(path.join("address.json")).ok()?;
            serde_json::from_str::<AddressFile>(&text).ok()
        };
        entries
            .flatten()
            .filter_map(|entry| read(entry.path()))
            .map(|file| (file.node, file))
            .collect()
    }

    /// The address file of a node, if it is there.
    #[must_use]
    pub fn address(&self, node: u32) -> Option<AddressFile> {
        let path = self.dir.join("nodes").join(node.to_string()).join("address.json");
        serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
    }

    /// True if a node was a keeper when it ran last.
    #[must_use]
    pub fn is_keeper(&self, node: u32) -> bool {
        self.state(node).join("keeper").exists()
    }
    /// True if a node's state is here.
    #[must_use]
    pub fn has_state(&self, node: u32) -> bool {
        self.state(node).exists()
    }
    fn state(&self, node: u32) -> PathBuf {
        self.dir.join("nodes").join(node.to_string()).join("state")
    }

    fn missing(&self, reason: &str) -> ClientError {
        ClientError::NoInstance { dir: self.dir.clone(), reason: reason.to_owned() }
    }
}

/// The name of this machine, for people.
#[must_use]
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-._".contains(*c);
    name.trim().chars().filter(is_plain).take(HOST_NAME_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn this_machine_has_a_name() {
        assert!(!host_name().is_empty());
    }

    #[test]
    fn reads_what_nodes_write_and_passes_over_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let instance = Instance::new(dir.path());
        assert!(matches!(instance.dialer(), Err(ClientError::NoInstance { .. })));
        assert!(matches!(instance.cluster(), Err(ClientError::NoInstance { .. })));
        assert!(instance.addresses().is_empty());

        let cluster = r#"{"format":1,"cluster":"5","nodes":2,"partitions":64,"replicas":1}"#;
        std::fs::write(dir.path().join("cluster.json"), cluster).unwrap();
        for node in ["0", "1"] {
            std::fs::create_dir_all(dir.path().join("nodes").join(node)).unwrap();
        }
        let address = r#"{"format":1,"node":1,"incarnation":3,"address":"127.0.0.1:9",
                          "pid":7,"slots":2}"#;
        std::fs::write(dir.path().join("nodes/1/address.json"), address).unwrap();
        std::fs::write(dir.path().join("nodes/0/address.json"), "{").unwrap();

        assert_eq!(instance.cluster().unwrap().nodes, 2);
        assert!(instance.dialer().unwrap_err().to_string().contains("client.pem"));
        let keyring = Keyring::of_instance(dir.path());
        keyring.prepare().unwrap();
        assert!(!instance.dialer().unwrap().is_insecure());
        let key = keyring.path(Role::Client);
        let text = std::fs::read(&key).unwrap();
        std::fs::write(&key, "").unwrap();
        let damaged = instance.dialer().unwrap_err();
        assert!(matches!(damaged, ClientError::BadKey(_)), "{damaged}");
        assert!(damaged.hint().unwrap().contains("keys"), "no cluster is to be started");
        std::fs::write(&key, text).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
        let open = instance.dialer().unwrap_err();
        assert!(matches!(open, ClientError::KeyMode { mode: 0o640, .. }), "{open}");
        let addresses = instance.addresses();
        assert_eq!(addresses.keys().copied().collect::<Vec<_>>(), [1]);
        assert_eq!(addresses[&1].incarnation, 3);
        assert!(instance.address(0).is_none());

        let newer = cluster.replace("\"format\":1", "\"format\":2");
        std::fs::write(dir.path().join("cluster.json"), newer).unwrap();
        assert!(instance.cluster().unwrap_err().to_string().contains("format 2"));
    }
}
