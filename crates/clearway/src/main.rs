//! `clearway`: measures congestion on a cluster network, shows which traffic classes remove it, and
//! keeps the report.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))] // tests are named function__case

mod agent;
mod command;
mod doctor;
mod mechanism;
mod policy;
mod qos;
mod report;
mod run;
mod scenario;
mod together;

fn main() -> std::process::ExitCode {
    command::main()
}
