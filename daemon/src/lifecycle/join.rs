/*!
The exchange of a token for the keys of an instance, both sides.

```text
joining node, has a token                  member, has the keys
TLS: no certificate; checks the            presents its certificate and the authority's
     authority's fingerprint in the token
secret of the token, 32 bytes ─────────▶   removes the token's file, so that it works once
                              ◀─────────   length (4 bytes), then the authority's bundle
```
A length of zero is a refusal. A caller without a valid token does not learn whether it was unknown,
used or expired.
*/

use std::time::Duration;

use proto::limits;
use security::{Keyring, SECRET_BYTES, Token, tls};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The size of the keys that a node returns for a token.
const JOIN_KEYS_BYTES_MAX: usize = 16 << 10;

/// The side that sends the keys.
pub(crate) async fn hand_over(
    keyring: &Keyring,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<(), String> {
    let mut secret = [0; SECRET_BYTES];
    stream.read_exact(&mut secret).await.map_err(|error| error.to_string())?;
    let keyring = keyring.clone();
    // On another thread, because a shared file system may be slow.
    let redeemed = tokio::task::spawn_blocking(move || {
        keyring.tokens().redeem(&secret).then(|| keyring.authority()).transpose()
    });
    let keys = redeemed.await.map_err(|error| error.to_string())?;
    let keys = keys.map_err(|error| error.to_string())?;
    let keys_pem = keys.as_ref().map_or("", |authority| authority.to_pem());
    let mut answer = (keys_pem.len() as u32).to_le_bytes().to_vec();
    answer.extend(keys_pem.as_bytes());
    let send = async {
        stream.write_all(&answer).await?;
        stream.flush().await?;
        stream.shutdown().await
    };
    send.await.map_err(|error| error.to_string())?;
    if keys.is_none() {
        return Err("its token is unknown, used or too old".to_owned());
    }
    Ok(())
}

/// The requesting side: receives the keys and stores them in the keyring. Has its own runtime.
pub(crate) fn redeem(address: &str, token: &Token, keyring: &Keyring) -> Result<(), String> {
    let ask = || -> Result<String, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let patience = 2 * Duration::from_nanos(limits::HANDSHAKE_TIMEOUT.0);
            let asked = tokio::time::timeout(patience, ask_for_keys(address, token)).await;
            asked.unwrap_or_else(|_| Err("no answer in time".to_owned()))
        })
    };
    let pem = std::thread::scope(|scope| scope.spawn(ask).join())
        .unwrap_or_else(|_| Err("asking it failed".to_owned()))?;
    keyring.adopt(token, &pem).map_err(|error| error.to_string())
}

async fn ask_for_keys(address: &str, token: &Token) -> Result<String, String> {
    let config = tls::client_with_token(token).map_err(|error| error.to_string())?;
    let said = |error: std::io::Error| security::dial::describe(&error);
    let mut stream = security::dial::open_with(address, config).await.map_err(said)?;
    stream.write_all(token.secret()).await.map_err(said)?;
    stream.flush().await.map_err(said)?;
    let length = stream.read_u32_le().await.map_err(said)? as usize;
    if length == 0 {
        return Err(
            "it does not take the token: it was used, has ended, or is of another".to_owned()
        );
    }
    if length > JOIN_KEYS_BYTES_MAX {
        return Err(format!("its answer of {length} bytes is too long for keys"));
    }
    let mut pem = vec![0; length];
    stream.read_exact(&mut pem).await.map_err(said)?;
    String::from_utf8(pem).map_err(|error| format!("its keys are not text: {error}"))
}
