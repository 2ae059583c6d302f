//! The whole system, from the command line: each test runs the real binary.

mod bad_input;
mod cluster;
mod commands;
mod cuts;
mod data;
mod evaluation;
mod failing_disk;
mod faults;
mod faults_data;
mod formats;
mod full_disk;
mod inputs;
mod kept;
mod launchers;
mod poison;
mod recorded;
mod removal;
mod replicas;
mod scrub;
mod slurm;
mod soak;
mod strangers;
mod synthetic;
mod tools;
mod tuning;
mod uploads;
