//! The targets in the system of a place, for a stream channel.

use flow::Clock;
use stream::{OpenTargets, StreamError, Target};

use super::place::StreamPlace;

/// Opens targets of the system that a place is in, by its credentials and settings.
#[derive(Debug)]
pub(crate) struct PlaceTargets {
    pub(crate) place: StreamPlace,
    pub(crate) clock: Clock,
}

impl OpenTargets for PlaceTargets {
    fn check(&self, name: &str) -> Result<(), StreamError> {
        self.open(name).map(drop)
    }

    fn open(&self, name: &str) -> Result<Box<dyn Target>, StreamError> {
        self.place.beside(name).target(self.clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_a_place_is_found_again_by_its_name() {
        for (url, expected) in [
            ("nats://host/a.b", ("nats", "a.b")),
            ("amqp://host/v?queue=q", ("amqp", "/q")),
            ("amqp://host/v?exchange=x&key=k", ("amqp", "x/k")),
            #[cfg(feature = "kafka")]
            ("kafka://host/topic", ("kafka", "topic")),
            #[cfg(feature = "sqs")]
            ("sqs://key:secret@q.fifo?region=a", ("sqs", "q.fifo")),
            #[cfg(feature = "kinesis")]
            ("kinesis://key:secret@s?region=a", ("kinesis", "s")),
        ] {
            let place = StreamPlace::parse(&url.parse().unwrap(), None).unwrap();
            let (system, name) = place.recipient().unwrap();
            assert_eq!((system, name.as_str()), expected);
            let again = place.beside(&name);
            assert_eq!(again.recipient().unwrap(), (system, name.clone()), "{url}");
            let targets = PlaceTargets { place, clock: Clock::system() };
            assert!(targets.check(&name).is_ok(), "{url}");
        }
        let place = StreamPlace::parse(&"nats://host/a".parse().unwrap(), None).unwrap();
        assert!(PlaceTargets { place, clock: Clock::system() }.check("a b").is_err());
    }
}
