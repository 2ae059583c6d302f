//! Finds the cpus, the memory and the GPUs that a node may offer.
