//! AMD GPUs, by the topology that their driver publishes.

use super::{Device, Devices, FoundGpus};
use crate::machine::Machine;

const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";

pub(super) fn find(machine: &Machine) -> Option<FoundGpus> {
    let number = |name: &String| name.parse::<u32>().ok();
    let mut nodes: Vec<u32> = machine.names(NODES).iter().filter_map(number).collect();
    nodes.sort_unstable();
    let list = nodes.into_iter().filter_map(|node| device(machine, node)).collect();
    let devices = Devices { list, notices: Vec::new() };
    devices.found(machine, "gpus/amd", "ROCR_VISIBLE_DEVICES", NODES)
}

/// `None`: the node of the topology is no GPU. A control group makes its files unreadable or empty.
fn device(machine: &Machine, node: u32) -> Option<Device> {
    let text = machine.read(&format!("{NODES}/{node}/properties"))?;
    let value = |key: &str| {
        let found = text.lines().filter_map(|line| line.trim().split_once(' '));
        found.into_iter().find(|(name, _)| *name == key)?.1.trim().parse::<u64>().ok()
    };
    if value("simd_count")? == 0 {
        return None;
    }
    let (domain, location) = (value("domain").unwrap_or(0), value("location_id").unwrap_or(0));
    let (bus, device, function) = (location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
    let address = format!("{domain:04x}:{bus:02x}:{device:02x}.{function}");
    let uuid = value("unique_id").filter(|&id| id != 0).map(|id| format!("GPU-{id:016x}"));
    let minor = value("drm_render_minor").filter(|&minor| minor != 0);
    let usable = minor.is_none_or(|minor| machine.opens(&format!("/dev/dri/renderD{minor}")));
    Some(Device { address, uuid, usable })
}
