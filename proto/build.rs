//! Compiles the protocol to prost messages, without protoc.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/starling.proto", "proto/door.proto"], ["proto"])?;
    let mut config = prost_build::Config::new();
    config.bytes([
        ".starling.v1.KvOp",
        ".starling.v1.KvResult",
        ".starling.v1.KvWatch",
        ".starling.v1.KvKey",
        ".starling.v1.KvPair",
        ".starling.v1.KvSwap",
        ".starling.v1.KvFollow",
        ".starling.v1.Fragment",
        ".starling.v1.RecordWrite",
        ".starling.v1.Packet",
        ".starling.v1.Piece",
        ".starling.v1.TaskStream",
        ".starling.v1.SmallObject",
        ".starling.v1.UploadPart",
        ".starling.v1.Call",
        ".starling.v1.Placed.payload",
    ]);
    // Boxed, because few messages are that large.
    config.boxed(".starling.v1.TallyReport.part");
    config.boxed(".starling.v1.Placed.resume");
    config.boxed(".starling.v1.Command.notice");
    config.boxed(".starling.v1.Message.body.turn");
    config.boxed(".starling.v1.DoorRequest.body.spawn");
    config.boxed(".starling.v1.DoorRequest.body.rsh");
    config.boxed(".starling.v1.RshInput.body.start");
    config.boxed(".starling.v1.DoorResponse.body.variable");
    config.compile_fds(files)?;
    Ok(())
}
