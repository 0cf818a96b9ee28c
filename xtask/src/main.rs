//! The project's own checks and generators.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::write(root.join("docs/lifecycle.md"), notification::lifecycle::to_markdown())?;
    Ok(())
}
