//! Generates the client stubs of the services; the messages are those of `proto::wire`.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../proto/proto/starling.proto");
    let files = protox::compile(["../proto/proto/starling.proto"], ["../proto/proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .extern_path(".starling.v1", "::proto::wire")
        .compile_fds(files)?;
    Ok(())
}
