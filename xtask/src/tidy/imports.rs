//! Which file takes from which, through re-exports; and what follows from it: no circle of files, no stage that knows a
//! stage, no backend that is named outside the binary. Stages and backends are read from the folders.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Krate, Module, Segments};

/// Where a module stands: its crate, and its path within.
type Place = (String, Segments);

/// One file takes something from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: End,
    pub(crate) to: End,
    /// Whether a file takes from the file of a module that it is within.
    pub(crate) is_upward: bool,
}

/// One end of an import.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    pub(crate) krate: String,
    /// The module below the crate's root that it belongs to; none for the root itself.
    pub(crate) room: Option<String>,
    pub(crate) file: String,
}

/// The crate of the stages, and those of its modules that stages share. Every other public one is a stage.
const STAGES: (&str, &[&str]) = ("pipeline", &["channels", "metrics", "report", "spans"]);

/// The seams. Every public module of theirs is a backend, but for what is common to all.
const SEAMS: &[&str] = &["store", "stream", "queue", "channel"];
/// `kafka` is a stream and, upon that, a queue.
const COMMON: &[&str] =
    &["aws", "conformance", "broker", "connect", "dead_letter", "kafka", "record_map", "ticket"];

/// Names backends: it wires them together.
const BINARY: &str = "belfry";
/// Names the backends of two seams: the benchmark measures stores and brokers without an engine around them.
const MEASURING: (&str, [&str; 2]) = ("bench", ["queue", "store"]);

/// A re-export of a re-export of ... has an end.
const STEPS_MAX: usize = 16;

/// The crates, to be asked what a path means.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) crates: BTreeMap<String, Krate>,
}

// === impl Workspace ===

impl Workspace {
    /// All imports between different files.
    pub(crate) fn imports(&self) -> BTreeSet<Import> {
        let mut imports = BTreeSet::new();
        for (krate, modules) in self.modules() {
            for (path, module) in modules {
                let from = (krate.clone(), path.clone());
                let reached = module.named.iter().filter_map(|named| self.reached(&from, named));
                for to in reached {
                    let is_upward = from.0 == to.0 && from.1.starts_with(&to.1);
                    let import = Import { from: self.end(&from), to: self.end(&to), is_upward };
                    if import.from.file != import.to.file {
                        imports.insert(import);
                    }
                }
            }
        }
        imports
    }

    /// One line for each import that must not be, and for each circle.
    pub(crate) fn check(&self) -> Vec<String> {
        let imports = self.imports();
        let circles = circles(&imports);
        let refused = imports.iter().filter_map(|import| self.refusal(import));
        refused.chain(circles.iter().map(|circle| tell(&imports, circle))).collect()
    }

    fn modules(&self) -> impl Iterator<Item = (&String, &BTreeMap<Segments, Module>)> {
        self.crates.iter().map(|(name, krate)| (name, &krate.modules))
    }

    fn module(&self, (krate, path): &Place) -> Option<&Module> {
        self.crates.get(krate)?.modules.get(path)
    }

    fn end(&self, place: &Place) -> End {
        let file = self.module(place).map(|module| module.file.clone()).unwrap_or_default();
        End { krate: place.0.clone(), room: place.1.first().cloned(), file }
    }

    /// The module that defines what `from` names. A path to a module itself reaches nothing: what is taken from it
    /// has a longer path.
    fn reached(&self, from: &Place, named: &[String]) -> Option<Place> {
        let found = self.resolve(from, named, STEPS_MAX)?;
        (!found.is_module).then_some(found.place)
    }

    /// The meaning of `path`, as it is written in the module `from`.
    fn resolve(&self, from: &Place, path: &[String], steps: usize) -> Option<Found> {
        let (first, rest) = path.split_first()?;
        let steps = steps.checked_sub(1)?;
        let (krate, place) = from;
        match first.as_str() {
            "crate" => self.lookup(&(krate.clone(), Vec::new()), rest, steps),
            "self" => self.lookup(from, rest, steps),
            "super" => {
                let (_, parent) = place.split_last()?;
                let parent = (krate.clone(), parent.to_vec());
                match rest.first().map(String::as_str) {
                    Some("super") => self.resolve(&parent, rest, steps),
                    _ => self.lookup(&parent, rest, steps),
                }
            }
            name => {
                let module = self.module(from)?;
                let child = (krate.clone(), [place.as_slice(), &[name.to_owned()]].concat());
                if self.module(&child).is_some()
                    // An import that begins with the name that it gives (`use feed::feed`) would lead back here.
                    || module.imported.get(name).is_some_and(|target| target != path)
                {
                    return self.lookup(from, path, steps);
                }
                let root = (name.to_owned(), Vec::new());
                self.crates.contains_key(name).then(|| self.lookup(&root, rest, steps))?
            }
        }
    }

    /// The meaning of `path` below the module `at`.
    fn lookup(&self, at: &Place, path: &[String], steps: usize) -> Option<Found> {
        let module = self.module(at)?;
        let Some((name, rest)) = path.split_first() else {
            return Some(Found { place: at.clone(), is_module: true });
        };
        let child = (at.0.clone(), [at.1.as_slice(), std::slice::from_ref(name)].concat());
        if self.module(&child).is_some() {
            return self.lookup(&child, rest, steps);
        }
        let here = Found { place: at.clone(), is_module: false };
        if module.defined.contains(name) {
            return Some(here);
        }
        if let Some(target) = module.imported.get(name) {
            let target = [target.as_slice(), rest].concat();
            return self.resolve(at, &target, steps);
        }
        let through = |glob: &Segments| {
            let target = [glob.as_slice(), path].concat();
            self.resolve(at, &target, steps).filter(|found| self.defines(found, path))
        };
        // What is found nowhere, such as an item that a macro makes, counts as defined here.
        module.globs.iter().find_map(through).or(Some(here))
    }

    /// Whether what was found under a glob really is there.
    fn defines(&self, found: &Found, path: &[String]) -> bool {
        let Some(module) = self.module(&found.place) else { return false };
        found.is_module || path.iter().any(|name| module.defined.contains(name))
    }

    fn refusal(&self, Import { from, to, .. }: &Import) -> Option<String> {
        let (from_room, to_room) = (from.room.as_deref(), to.room.as_deref());
        let is_stage = |end: &End| {
            let (krate, shared) = STAGES;
            let room = end.room.as_deref();
            end.krate == krate && room.is_some_and(|room| !shared.contains(&room))
        };
        let is_sibling = from.krate == to.krate && from_room != to_room;
        if is_sibling && is_stage(from) && is_stage(to) {
            return Some(format!(
                "{}: the stage {} must not know the stage {} ({})",
                from.file,
                from_room.unwrap_or_default(),
                to_room.unwrap_or_default(),
                to.file
            ));
        }
        let (measuring, measured) = MEASURING;
        let is_measuring = from.krate == measuring && measured.contains(&to.krate.as_str());
        let may_name = from.krate == BINARY || is_measuring || from.krate == to.krate;
        let stranger = !may_name && self.is_backend(to);
        let sibling = is_sibling && self.is_backend(from) && self.is_backend(to);
        (stranger || sibling).then(|| {
            let (file, backend) = (&from.file, to_room.unwrap_or_default());
            format!("{file}: only crates/{BINARY} names the backend {backend} ({})", to.file)
        })
    }

    fn is_backend(&self, end: &End) -> bool {
        let is_public = |room: &str| {
            self.crates.get(&end.krate).is_some_and(|krate| krate.public.contains(room))
        };
        SEAMS.contains(&end.krate.as_str())
            && end.room.as_deref().is_some_and(|room| is_public(room) && !COMMON.contains(&room))
    }
}

/// The meaning of a path: an item of a module, or a module.
struct Found {
    place: Place,
    is_module: bool,
}

/// The sets of files that reach each other, in order.
fn circles(imports: &BTreeSet<Import>) -> BTreeSet<Vec<&str>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    // A module names its parts, and they take from it: that is nesting and no circle.
    for import in imports.iter().filter(|import| !import.is_upward) {
        next.entry(&import.from.file).or_default().insert(&import.to.file);
    }
    let reachable = |start: &str| {
        let (mut seen, mut ahead) = (BTreeSet::new(), vec![start]);
        while let Some(file) = ahead.pop() {
            for file in next.get(file).into_iter().flatten().copied() {
                if seen.insert(file) {
                    ahead.push(file);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|file| (*file, reachable(file))).collect();
    let mut circles = BTreeSet::new();
    for (file, reached_from) in &reached {
        let reaches_back = |other: &&str| {
            reached.get(other).is_some_and(|reached_back| reached_back.contains(file))
        };
        let circle: Vec<&str> = reached_from.iter().copied().filter(reaches_back).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles
}

/// A circle, and what ties it.
fn tell(imports: &BTreeSet<Import>, circle: &[&str]) -> String {
    let is_in = |import: &&Import| {
        circle.contains(&&*import.from.file) && circle.contains(&&*import.to.file)
    };
    let tie = |import: &Import| format!("  {} -> {}", import.from.file, import.to.file);
    let ties: Vec<String> = imports.iter().filter(is_in).map(tie).collect();
    format!("these files import each other:\n{}", ties.join("\n"))
}
