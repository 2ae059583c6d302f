//! The memory that unauthenticated connections cost a node, from the system.

use std::io::Write;
use std::net::TcpStream;

use proto::limits;
use starling_tests::Instance;

const UNAUTHENTICATED_BYTES_MAX: u64 = 1 << 20;

fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("linux tells it");
    let kib = line.split_whitespace().nth(1).and_then(|it| it.parse::<u64>().ok());
    kib.expect("a number") << 10
}

/// Each connection sends as many bytes as a node accepts without a certificate.
#[test]
fn an_unauthenticated_connection_costs_less_than_a_mebibyte() {
    let instance = Instance::up(1, 1);
    let pid = instance.pid(0);
    let nodes = instance.starling(&["node", "list", "--json"]).ok().json();
    let address = nodes["nodes"][0]["addr"].as_str().expect("it listens").to_owned();
    // The first connection also pays for one-time allocations.
    let open = || {
        let mut stream = TcpStream::connect(&address).expect("the port is open");
        // A record with the start of a TLS hello of nearly 64 KiB, and three further records.
        let mut bytes = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xf0];
        bytes.resize(5 + 0x4000, 0);
        for _ in 0..3 {
            bytes.extend([22, 3, 1, 0x3f, 0]);
            bytes.resize(bytes.len() + 0x3f00, 0);
        }
        stream.set_nonblocking(true).expect("it is a socket");
        let _ = stream.write(&bytes); // It may accept fewer bytes.
        stream
    };
    drop(open());
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = resident_bytes(pid);
    let strangers: Vec<TcpStream> =
        (0..limits::UNAUTHENTICATED_CONNECTIONS_MAX).map(|_| open()).collect();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let grown = resident_bytes(pid).saturating_sub(before);
    let each = grown / strangers.len() as u64;
    assert!(each < UNAUTHENTICATED_BYTES_MAX, "{each} bytes for each unauthenticated peer");
    drop(strangers);
    instance.down();
}
