//! Intel GPUs, by the cards of the kernel. Level Zero counts them by PCI address.

use super::{Device, Devices, FoundGpus};
use crate::machine::Machine;

const CARDS: &str = "/sys/class/drm";
const VENDOR: &str = "0x8086";

pub(super) fn find(machine: &Machine) -> Option<FoundGpus> {
    let is_card =
        |name: &&String| name.strip_prefix("card").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let mut devices = Devices::default();
    for card in machine.names(CARDS).iter().filter(is_card) {
        let device = format!("{CARDS}/{card}/device");
        if machine.read(&format!("{device}/vendor")).as_deref() != Some(VENDOR) {
            continue;
        }
        let Some(address) = machine.link_name(&device) else { continue };
        // The GPU of the processor itself is on the first bus; it drives the screen.
        if address.split(':').nth(1) == Some("00") {
            continue;
        }
        let render = machine.names(&format!("{device}/drm"));
        let render = render.iter().find(|name| name.starts_with("renderD"));
        let usable = render.is_none_or(|name| machine.opens(&format!("/dev/dri/{name}")));
        devices.list.push(Device { address, uuid: None, usable });
    }
    devices.list.sort_by(|a, b| a.address.cmp(&b.address));
    devices.found(machine, "gpus/intel", "ZE_AFFINITY_MASK", CARDS)
}
