//! Prints a page of `docs/reference` that is made from this crate: `reference problems | openapi`. `cargo xtask docs` runs it.
#![expect(clippy::print_stdout, reason = "prints a page")]

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("problems") => print!("{}", api::problems_markdown()),
        Some("openapi") => println!("{:#}", api::openapi()),
        _ => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}
