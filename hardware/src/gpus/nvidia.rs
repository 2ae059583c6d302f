//! NVIDIA GPUs, by the files of their driver.
//!
//! Programs count GPUs by PCI address if `CUDA_DEVICE_ORDER` is `PCI_BUS_ID`. The names of parts
//! (MIG) are only known to the driver's library. So a node offers parts if `CUDA_VISIBLE_DEVICES`
//! names them, as batch systems do.

use super::{Device, Devices, FoundGpus};
use crate::machine::Machine;

const GPUS: &str = "/proc/driver/nvidia/gpus";
const PARTS: &str = "/proc/driver/nvidia/capabilities";
const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

pub(super) fn find(machine: &Machine) -> Option<FoundGpus> {
    let mut devices = Devices {
        // The names are addresses, and sorted.
        list: machine.names(GPUS).iter().map(|address| device(machine, address)).collect(),
        notices: Vec::new(),
    };
    let parts = divided(machine);
    if parts > 0 && machine.variable(VARIABLE).is_none() {
        devices.notices.push(format!(
            "{parts} of the GPUs are divided into parts (MIG); {VARIABLE} must name the parts"
        ));
    }
    devices.found(machine, "gpus/nvidia", VARIABLE, GPUS)
}

fn device(machine: &Machine, address: &str) -> Device {
    let text = machine.read(&format!("{GPUS}/{address}/information")).unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(key))?;
        Some(line.split_once(':')?.1.trim())
    };
    // A driver that has not read a UUID yet shows question marks.
    let uuid = value("GPU UUID").filter(|uuid| uuid.starts_with("GPU-") && !uuid.contains('?'));
    let minor = value("Device Minor").and_then(|minor| minor.parse::<u32>().ok());
    let usable = minor.is_none_or(|minor| machine.opens(&format!("/dev/nvidia{minor}")));
    Device { address: address.to_lowercase(), uuid: uuid.map(str::to_owned), usable }
}

/// The number of GPUs that are divided into parts.
fn divided(machine: &Machine) -> usize {
    let is_divided = |gpu: &String| {
        let parts = machine.names(&format!("{PARTS}/{gpu}/mig"));
        gpu.starts_with("gpu") && parts.iter().any(|part| part.starts_with("gi"))
    };
    machine.names(PARTS).iter().filter(|gpu| is_divided(gpu)).count()
}
