//! Writes the software bill of materials of the binary (`CycloneDX` 1.6): the crates that are linked into it, and the C libraries and the
//! standard library that come with them. Decision 0072 says why it is made here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail, ensure};
use cargo_metadata::{Metadata, MetadataCommand, Package};
use serde_json::{Value, json};

/// A C library whose source a crate brings along and compiles in. No list of crates names its version, and advisories do.
#[derive(Debug)]
struct BundledLibrary {
    /// The crate.
    package: &'static str,
    name: &'static str,
    /// Its licence, where that is not the crate's.
    license: Option<&'static str>,
    /// The header that says the version, in the crate's folder, and the word before it.
    header: &'static str,
    defined: &'static str,
    /// Beginning of its package URL.
    purl: &'static str,
}

/// All of them. A crate that links a library which is not here is an error, so that none goes unnamed.
const BUNDLED: &[BundledLibrary] = &[
    BundledLibrary {
        package: "aws-lc-sys",
        name: "AWS-LC",
        license: None,
        header: "aws-lc/include/openssl/base.h",
        defined: "AWSLC_VERSION_NUMBER_STRING",
        purl: "pkg:github/aws/aws-lc",
    },
    BundledLibrary {
        package: "libmimalloc-sys",
        name: "mimalloc",
        license: None,
        header: "c_src/mimalloc/v3/include/mimalloc.h",
        defined: "MI_MALLOC_VERSION",
        purl: "pkg:github/microsoft/mimalloc",
    },
    BundledLibrary {
        package: "libsqlite3-sys",
        name: "SQLite",
        license: Some("blessing"),
        header: "sqlite3/sqlite3.h",
        defined: "SQLITE_VERSION",
        purl: "pkg:generic/sqlite",
    },
];
/// Crates that `links` keeps a second version out of, and that bring no library along.
const WITHOUT_LIBRARY: &[&str] = &["aws-lc-rs"];

/// Prints the bill of `belfry` for the target triple, with the time of its source (RFC 3339), which both are `arguments`.
pub(crate) fn print(root: &Path, arguments: &[String]) -> anyhow::Result<ExitCode> {
    let [target, time] = arguments else {
        bail!(
            "usage: cargo xtask sbom TARGET TIME, such as x86_64-unknown-linux-gnu 2026-11-29T12:00:00Z"
        )
    };
    let mut metadata = MetadataCommand::new();
    metadata.current_dir(root).other_options(["--locked".to_owned()]);
    let metadata = metadata.exec().context("cargo metadata failed")?;
    let linked = linked(root, target)?;
    let bill = bill(&metadata, &linked, &checksums(root)?, &compiler(root)?, time)?;
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &bill)?;
    writeln!(out)?;
    Ok(ExitCode::SUCCESS)
}

/// Names and versions of the crates whose code is in the binary: no tools of the build, no macros, nothing of tests.
fn linked(root: &Path, target: &str) -> anyhow::Result<BTreeSet<(String, String)>> {
    let arguments = ["tree", "--locked", "--package", "belfry", "--prefix", "none"];
    let edges = ["--edges", "normal,no-proc-macro", "--format", "{p}", "--target", target];
    let lines = output(Command::new(env!("CARGO")).current_dir(root).args(arguments).args(edges))?;
    let crates = lines.lines().map(|line| {
        let mut words = line.split(' ');
        let (name, version) = words.next().zip(words.next()).context("a line without a version")?;
        Ok((name.to_owned(), version.trim_start_matches('v').to_owned()))
    });
    crates.collect()
}

/// SHA-256 of the archives that crates come in, by name and version.
fn checksums(root: &Path) -> anyhow::Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = fs::read_to_string(root.join("Cargo.lock"))?.parse()?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("no packages")?;
    let text = |package: &toml::Value, key| Some(package.get(key)?.as_str()?.to_owned());
    let sums = packages.iter().filter_map(|package| {
        Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?))
    });
    Ok(sums.collect())
}

/// The version of the compiler, which is that of the standard library.
fn compiler(root: &Path) -> anyhow::Result<String> {
    let said = output(Command::new("rustc").current_dir(root).arg("--version"))?;
    Ok(said.split(' ').nth(1).context("rustc says no version")?.to_owned())
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {complaint}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The whole document. Its components are sorted, and it has no serial number: the same source has the same bill.
fn bill(
    metadata: &Metadata,
    linked: &BTreeSet<(String, String)>,
    checksums: &BTreeMap<(String, String), String>,
    compiler: &str,
    time: &str,
) -> anyhow::Result<Value> {
    let key = |package: &Package| (package.name.to_string(), package.version.to_string());
    let mut packages: BTreeMap<_, _> =
        metadata.packages.iter().map(|package| (key(package), package)).collect();
    packages.retain(|key, _| linked.contains(key));
    ensure!(packages.len() == linked.len(), "cargo metadata lacks crates that cargo tree has");
    let root = packages.remove(&("belfry".to_owned(), version_of(metadata)?));
    let root = root.context("there is no package belfry")?;
    let standard = format!("pkg:generic/rust-std@{compiler}");
    let mut components = vec![json!({
        "type": "library", "bom-ref": standard, "name": "rust-std", "version": compiler,
        "licenses": [{"expression": "MIT OR Apache-2.0"}], "purl": standard,
    })];
    let mut edges = edges(metadata, &packages, root)?;
    edges.push(json!({"ref": standard, "dependsOn": []}));
    depend(&mut edges, root, json!(standard))?;
    for (reference, component) in of_dashboard(metadata.workspace_root.as_std_path())? {
        edges.push(json!({"ref": reference, "dependsOn": []}));
        depend(&mut edges, root, json!(reference))?;
        components.push(component);
    }
    for (key, package) in &packages {
        components.push(component(package, checksums.get(key))?);
        if let Some(library) = bundled(package)? {
            let (reference, component) = library.component(package)?;
            edges.push(json!({"ref": reference, "dependsOn": []}));
            depend(&mut edges, package, reference)?;
            components.push(component);
        }
    }
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {
            "timestamp": time,
            "tools": {"components": [{"type": "application", "name": "belfry xtask sbom"}]},
            "component": {
                "type": "application", "bom-ref": reference_to(root), "name": "belfry",
                "version": root.version.to_string(), "description": "Self-hosted notification delivery engine",
                "licenses": [{"expression": root.license}],
                "purl": format!("pkg:generic/belfry@{}", root.version),
            },
        },
        "components": components,
        "dependencies": edges,
    }))
}

/// The packages from npm whose code is in the files of the dashboard, each with its reference: those that its lock does not say are of
/// development alone.
fn of_dashboard(root: &Path) -> anyhow::Result<Vec<(String, Value)>> {
    let lock = fs::read(root.join("dashboard/package-lock.json"))?;
    let lock: Value = serde_json::from_slice(&lock)?;
    let packages =
        lock.get("packages").and_then(Value::as_object).context("a lock without packages")?;
    let is_built_in = |(path, package): &(&String, &Value)| {
        !path.is_empty() && package.get("dev") != Some(&json!(true))
    };
    let component = |(path, package): (&String, &Value)| {
        let name = path.trim_start_matches("node_modules/");
        let field = |key: &str| package.get(key).and_then(Value::as_str);
        let version = field("version").context("a package without a version")?;
        let license = field("license").context("a package without a licence")?;
        let reference = format!("pkg:npm/{}@{version}", name.replace('@', "%40"));
        let component = json!({
            "type": "library", "bom-ref": reference, "name": name, "version": version,
            "licenses": [{"expression": license}], "purl": reference,
        });
        Ok((reference, component))
    };
    let components: anyhow::Result<Vec<_>> =
        packages.iter().filter(is_built_in).map(component).collect();
    components.context("dashboard/package-lock.json")
}

/// Notes that `package` depends on one more.
fn depend(edges: &mut [Value], package: &Package, on: Value) -> anyhow::Result<()> {
    let from = reference_to(package);
    let edge = edges.iter_mut().find(|edge| edge.get("ref") == Some(&json!(from)));
    let list = edge.and_then(|edge| edge.get_mut("dependsOn")?.as_array_mut());
    list.with_context(|| format!("{from} is not in the graph"))?.push(on);
    Ok(())
}

fn version_of(metadata: &Metadata) -> anyhow::Result<String> {
    let mut members = metadata.workspace_packages().into_iter();
    let belfry = members.find(|package| package.name.as_str() == "belfry");
    Ok(belfry.context("there is no package belfry")?.version.to_string())
}

/// One crate. Ours have no package URL: it would name a stranger's crate of that name in the registry.
fn component(package: &Package, checksum: Option<&String>) -> anyhow::Result<Value> {
    let mut component = json!({
        "type": "library", "bom-ref": reference_to(package),
        "name": package.name.as_str(), "version": package.version.to_string(),
        "licenses": [{"expression": license_of(package)?}],
    });
    let fields = component.as_object_mut().context("no object")?;
    if package.source.is_some() {
        fields.insert("purl".to_owned(), json!(reference_to(package)));
    } else {
        fields.insert("group".to_owned(), json!("belfry"));
    }
    if let Some(checksum) = checksum {
        let hashes = json!([{"alg": "SHA-256", "content": checksum}]);
        fields.insert("hashes".to_owned(), hashes);
    }
    Ok(component)
}

/// Its licence as an SPDX expression: `MIT/Apache-2.0` is an old way of writing one.
fn license_of(package: &Package) -> anyhow::Result<String> {
    let license = package.license.as_deref().context("a crate without a licence")?;
    let parts: Vec<&str> = license.split('/').map(str::trim).collect();
    Ok(parts.join(" OR "))
}

fn reference_to(package: &Package) -> String {
    let kind = if package.source.is_some() { "pkg:cargo/" } else { "belfry:" };
    format!("{kind}{}@{}", package.name, package.version)
}

/// Which crate depends on which, of those in the binary.
fn edges(
    metadata: &Metadata,
    packages: &BTreeMap<(String, String), &Package>,
    root: &Package,
) -> anyhow::Result<Vec<Value>> {
    let known: BTreeMap<_, _> =
        packages.values().chain([&root]).map(|package| (&package.id, *package)).collect();
    let resolve = metadata.resolve.as_ref().context("cargo metadata resolved nothing")?;
    let nodes = resolve.nodes.iter().filter(|node| known.contains_key(&node.id));
    let mut edges = BTreeMap::new();
    for node in nodes {
        let normal = node.deps.iter().filter(|dependency| {
            dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind == cargo_metadata::DependencyKind::Normal)
        });
        let on: BTreeSet<_> = normal
            .filter_map(|dependency| {
                known.get(&dependency.pkg).map(|package| reference_to(package))
            })
            .collect();
        edges.insert(known.get(&node.id).map(|package| reference_to(package)), on);
    }
    Ok(edges.into_iter().map(|(from, on)| json!({"ref": from, "dependsOn": on})).collect())
}

/// The library that `package` brings along, if it does.
fn bundled(package: &Package) -> anyhow::Result<Option<&'static BundledLibrary>> {
    let Some(links) = package.links.as_deref() else { return Ok(None) };
    let name = package.name.as_str();
    let library = BUNDLED.iter().find(|library| library.package == name);
    ensure!(
        library.is_some() || WITHOUT_LIBRARY.contains(&name),
        "{name} links {links}: name that library in BUNDLED (xtask/src/sbom.rs), or say there that it is none"
    );
    Ok(library)
}

// === impl BundledLibrary ===

impl BundledLibrary {
    /// Its reference, and the whole component.
    fn component(&self, package: &Package) -> anyhow::Result<(Value, Value)> {
        let folder = package.manifest_path.parent().context("a manifest without a folder")?;
        let header = fs::read_to_string(folder.join(self.header))
            .with_context(|| format!("{} has no {}", package.name, self.header))?;
        let license = self.license.map_or_else(|| license_of(package), |it| Ok(it.to_owned()))?;
        let version = self.version(&header)?;
        let purl = format!("{}@{version}", self.purl);
        let component = json!({
            "type": "library", "bom-ref": purl, "name": self.name, "version": version,
            "licenses": [{"expression": license}], "purl": purl,
        });
        Ok((json!(purl), component))
    }

    /// `"3.54.1"`, or 30302 for 3.3.2: major, two digits of minor and two of patch.
    fn version(&self, header: &str) -> anyhow::Result<String> {
        let said = header.lines().find_map(|line| {
            let rest = line.trim().strip_prefix("#define ")?.trim_start();
            let rest = rest.strip_prefix(self.defined)?.strip_prefix([' ', '\t'])?;
            rest.split_whitespace().next()
        });
        let said =
            said.with_context(|| format!("{} does not define {}", self.header, self.defined))?;
        match said.parse::<u32>() {
            Ok(number) => {
                Ok(format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100))
            }
            Err(_) => Ok(said.trim_matches('"').to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_c_library_is_read_from_its_header() {
        let check = |name: &str, header: &str, expect: Option<&str>| {
            let library = BUNDLED.iter().find(|library| library.name == name).unwrap();
            assert_eq!(library.version(header).ok().as_deref(), expect, "{header}");
        };
        check("SQLite", "#define SQLITE_VERSION        \"3.54.1\"\n", Some("3.54.1"));
        check("SQLite", "#define SQLITE_VERSION_NUMBER 3054001\n", None);
        check("mimalloc", "#define MI_MALLOC_VERSION 30302   // three\n", Some("3.3.2"));
        check("AWS-LC", "// |AWSLC_VERSION_NUMBER_STRING|\n", None);
    }
}
