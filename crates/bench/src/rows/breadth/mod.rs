//! `breadth`: what an engine and a store do when there is much of everything: endpoints that are dead, lanes that wait, tenants with
//! backlogs.

mod endpoints;
mod lanes;
mod load;
mod name_server;
mod neighbours;
mod shares;
mod tenants;

use anyhow::Result;

use super::Bench;
use crate::report::RowReport;

pub(super) fn run(bench: &Bench) -> Result<Vec<RowReport>> {
    Ok(vec![neighbours::run(bench)?, lanes::run(bench)?, tenants::run(bench)?, shares::run(bench)?])
}
