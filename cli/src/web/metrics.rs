//! `starling metrics`: the state of all nodes for Prometheus, once or served.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tokio::net::TcpListener;
use verb::Context;
use verb::errors::{Done, Exit, Failure, plain};
use web::{Body, Guard, Question, Settings, Source, Token};

use super::{live, serve};

/// The token in the directory of the instance.
const TOKEN_FILE: &str = "metrics.token";

#[derive(Args, Debug)]
pub(crate) struct MetricsArgs {
    /// Serve them at http://ADDR/metrics; ADDR is on loopback, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The file of the bearer token; it is made if it is missing [default: metrics.token in the
    /// directory of the instance]
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
}

/// `starling metrics [--listen ADDR]`.
pub(crate) fn run(context: &Context, args: &MetricsArgs) -> Done {
    serve(async {
        let live = live::Live::connect(context, false).await?;
        let Some(address) = args.listen else {
            let answer = live.answer(Question::Metrics).await;
            let Ok(Body::Metrics(text)) = answer else {
                return Err(Failure::lost("the nodes do not answer"));
            };
            context.output.bytes(text.as_bytes())?;
            return Ok(Exit::Ok);
        };
        if !address.ip().is_loopback() {
            return Err(Failure::usage(format!("{address} is not on loopback"))
                .hint("listen on 127.0.0.1, and let Prometheus run here or come through ssh -L"));
        }
        let path = match &args.token_file {
            Some(path) => path.clone(),
            None => context.dir()?.join(TOKEN_FILE),
        };
        let token = token(&path)?;
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let text = format!("{address}: {}", plain(&error));
            Failure::refused(text).hint("name another port, or 0 for a free one")
        })?;
        let bound = listener.local_addr().map_err(|error| Failure::refused(plain(&error)))?;
        context.output.line(&format!("http://{bound}/metrics"))?;
        context.output.note(&format!("the bearer token is in {}", path.display()));
        let settings = Settings { metrics_only: true, ..Settings::default() };
        let guard = Guard::new(token, Vec::new());
        let served = web::serve(listener, Arc::new(live), guard, &settings).await;
        Err(Failure::lost(served.err().map_or_else(String::new, |error| plain(&error))))
    })
}

/// The token of a file, which only its owner can read; a missing file is made.
fn token(path: &Path) -> Result<Token, Failure> {
    let failed = |error: std::io::Error| Failure::file(path, &error);
    let created = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match created {
        Ok(mut file) => {
            let token = Token::random().map_err(failed)?;
            file.write_all(format!("{}\n", token.text()).as_bytes()).map_err(failed)?;
            return Ok(token);
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    let mode = std::fs::metadata(path).map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let text = format!("{}: other users can read it (mode {mode:o})", path.display());
        return Err(Failure::refused(text).hint("remove it; the next start makes another token"));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    Token::of_text(&text).ok_or_else(|| {
        Failure::refused(format!("{}: this is not a token", path.display()))
            .hint("it is at least 32 letters or digits; remove the file for another one")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_is_the_owners() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("t");
        let made = token(&path).unwrap();
        assert!(token(&path).unwrap() == made);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(token(&path).unwrap_err().message.contains("other users"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short").unwrap();
        assert!(token(&path).unwrap_err().message.contains("not a token"));
    }
}
