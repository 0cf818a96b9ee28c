//! The simulator alone, as it runs inside `belfry provider-sim`: for profiling it by itself.

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: provider_sim::SimulatorOptions,
}

fn main() -> Result<(), provider_sim::Error> {
    provider_sim::run(Command::parse().options)
}
