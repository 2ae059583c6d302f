//! The GPUs of a node. Each vendor has a pool of its own: `gpus/nvidia`, `gpus/amd`, `gpus/intel`.

mod amd;
mod intel;
mod nvidia;

use crate::machine::Machine;

/// A GPU that tasks may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Gpu {
    /// The text for the variable by which a program chooses its GPUs.
    pub(crate) name: String,
    /// The NUMA node that it is attached to, if known.
    pub(crate) numa: Option<u32>,
}

/// The GPUs of one vendor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FoundGpus {
    pub(crate) pool: &'static str,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) source: String,
    /// A variable that names fewer GPUs than the machine has, with their number.
    pub(crate) limit: Option<(String, usize)>,
    pub(crate) notices: Vec<String>,
}

/// A GPU as found in the files of its driver.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Device {
    /// Its address on the PCI bus, such as `0000:07:00.0`.
    address: String,
    uuid: Option<String>,
    usable: bool,
}

/// The files of one vendor's devices, in the order in which programs count them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Devices {
    list: Vec<Device>,
    notices: Vec<String>,
}

pub(crate) fn find(machine: &Machine) -> Vec<FoundGpus> {
    let vendors = [nvidia::find(machine), amd::find(machine), intel::find(machine)];
    vendors.into_iter().flatten().collect()
}

/// The NUMA node of a PCI device. The kernel shows -1 where there is none.
fn numa(machine: &Machine, address: &str) -> Option<u32> {
    machine.read(&format!("/sys/bus/pci/devices/{address}/numa_node"))?.parse().ok()
}

/// The names in a variable that lists GPUs; `None`: it is not set.
fn listed<'m>(machine: &'m Machine, variable: &str) -> Option<Vec<&'m str>> {
    let names = machine.variable(variable)?.split(',').map(str::trim);
    // As the drivers do: the list ends at the first name that is no GPU.
    Some(
        names
            .take_while(|name| !name.is_empty() && *name != "-1" && *name != "NoDevFiles")
            .collect(),
    )
}

impl Devices {
    /// The GPUs of a vendor: those of the variable if it is set, else all usable ones.
    fn found(
        self,
        machine: &Machine,
        pool: &'static str,
        variable: &str,
        source: &str,
    ) -> Option<FoundGpus> {
        let Self { list, mut notices } = self;
        if let Some(names) = listed(machine, variable) {
            let gpu = |name: &str| {
                let device = matching(&list, name);
                let numa = device.and_then(|device| numa(machine, &device.address));
                Gpu { name: name.to_owned(), numa }
            };
            let mut gpus: Vec<Gpu> = Vec::new();
            // As the drivers do: the list ends at a number that no GPU has.
            let is_beyond = |name: &&str| name.parse::<usize>().is_ok_and(|at| at >= list.len());
            for name in names.into_iter().take_while(|name| list.is_empty() || !is_beyond(name)) {
                match gpus.iter().any(|gpu| gpu.name == name) {
                    true => notices.push(format!("{variable} lists {name} twice")),
                    false => gpus.push(gpu(name)),
                }
            }
            if gpus.is_empty() && list.is_empty() {
                return None;
            }
            let limit = (!list.is_empty()).then(|| (variable.to_owned(), gpus.len()));
            return Some(FoundGpus { pool, gpus, source: variable.to_owned(), limit, notices });
        }
        if list.is_empty() && notices.is_empty() {
            return None;
        }
        let closed = list.iter().filter(|device| !device.usable).count();
        if closed > 0 {
            notices.push(format!("{closed} of {} {pool} cannot be opened", list.len()));
        }
        let gpus = list.iter().enumerate().filter(|(_, device)| device.usable);
        let gpu = |(at, device): (usize, &Device)| Gpu {
            name: device.uuid.clone().unwrap_or_else(|| at.to_string()),
            numa: numa(machine, &device.address),
        };
        let gpus = gpus.map(gpu).collect();
        Some(FoundGpus { pool, gpus, source: source.to_owned(), limit: None, notices })
    }
}

/// The device that a variable names: by number, by UUID, by the beginning of a UUID, or by the UUID
/// inside the name of a part of it.
fn matching<'d>(devices: &'d [Device], name: &str) -> Option<&'d Device> {
    if let Ok(number) = name.parse::<usize>() {
        return devices.get(number);
    }
    let whole = name.strip_prefix("MIG-").filter(|rest| rest.starts_with("GPU-"));
    let name = whole.map_or(name, |rest| rest.split('/').next().unwrap_or(rest));
    devices.iter().find(|device| device.uuid.as_ref().is_some_and(|uuid| uuid.starts_with(name)))
}
