//! Generates the server and client stubs of the services; the messages are those of `proto::wire`.
//! Also writes the protocol's description, which a node serves by gRPC reflection.
use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../proto/proto/starling.proto");
    let files = protox::compile(["../proto/proto/starling.proto"], ["../proto/proto"])?;
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), files.encode_to_vec())?;
    tonic_prost_build::configure()
        .extern_path(".starling.v1", "::proto::wire")
        .compile_fds(files)?;
    Ok(())
}
