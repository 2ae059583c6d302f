//! The functions that clients have put into the user's store, for calls of this node.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use client::Client;
use executor::FunctionStore;
use ring::digest;

/// The start of the key of a function; the hexadecimal digits of its hash follow.
const KEY_PREFIX: &str = "function/";

type Done = Box<dyn FnOnce(Result<Vec<u8>, String>) + Send>;

/// Reads functions with a client of this instance.
#[derive(Debug)]
pub(crate) struct StoredFunctions {
    pub(crate) dir: PathBuf,
}

impl FunctionStore for StoredFunctions {
    fn fetch(&self, id: [u8; 16], done: Done) {
        let dir = self.dir.clone();
        let done = Arc::new(Mutex::new(Some(done)));
        let end = |done: &Mutex<Option<Done>>, bytes| {
            let done = done.lock().expect("no holder panics").take();
            if let Some(done) = done {
                done(bytes);
            }
        };
        let theirs = done.clone();
        // The caller must not wait, and a node seldom fetches, so each fetch has its own thread.
        let fetch = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let bytes = match runtime {
                Ok(runtime) => runtime.block_on(read(dir, id)),
                Err(error) => Err(format!("cannot fetch the function: {error}")),
            };
            end(&theirs, bytes);
        };
        let thread = std::thread::Builder::new().name("function".to_owned());
        if let Err(error) = thread.spawn(fetch) {
            end(&done, Err(format!("cannot fetch the function: {error}")));
        }
    }
}

async fn read(dir: PathBuf, id: [u8; 16]) -> Result<Vec<u8>, String> {
    let name = security::to_hex(&id);
    let key = format!("{KEY_PREFIX}{name}");
    let client = Client::connect(&dir).await.map_err(|error| error.to_string())?;
    let value = client.kv().lookup(key.as_bytes()).await.map_err(|error| error.to_string())?;
    let Some(value) = value else {
        return Err(format!("the function {name} is not in the store (key {key})"));
    };
    match is_right(id, &value.bytes) {
        true => Ok(value.bytes.to_vec()),
        false => Err(format!("the value of the key {key} is another function")),
    }
}

/// True if a function with this id has these bytes.
fn is_right(id: [u8; 16], bytes: &[u8]) -> bool {
    digest::digest(&digest::SHA256, bytes).as_ref().starts_with(&id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_function_is_refused() {
        let mut id = [0; 16];
        id.copy_from_slice(&digest::digest(&digest::SHA256, b"one").as_ref()[..16]);
        assert!(is_right(id, b"one") && !is_right(id, b"two"));
    }
}
