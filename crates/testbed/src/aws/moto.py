"""Starts moto with its faults mended that matter here.

As it comes, two puts at a time give two records one sequence number, and one of them is lost; two receives at a time give one message
twice; and a shard that was split or merged stays the one that is put to and read from, for ever.
"""

import sys
import threading
import time
from collections import OrderedDict
from types import SimpleNamespace

from moto.kinesis.models import KinesisBackend, Shard, Stream
from moto.kinesis.utils import decompose_shard_iterator
from moto.server import main
from moto.sqs.models import SQSBackend

lock = threading.RLock()


def alone(function):
    def locked(*arguments, **options):
        with lock:
            return function(*arguments, **options)

    return locked


def keeping_records(reshard):
    """Leaves the records of shards that are split or merged where they are."""

    def resharded(self, *arguments):
        with lock:
            kept = {name: shard.records for name, shard in self.shards.items()}
            for shard in self.shards.values():
                shard.records = OrderedDict()
            try:
                reshard(self, *arguments)
            finally:
                for name, records in kept.items():
                    self.shards[name].records = records

    return resharded


def of_open_shards(find):
    """Puts to no shard that was split or merged."""

    def found(self, *arguments):
        is_open = {name: shard for name, shard in self.shards.items() if shard.is_open}
        return find(SimpleNamespace(shards=is_open), *arguments)

    return found


def ending(get_records):
    """Tells the end of a shard that was split or merged."""

    def got(self, stream_arn, shard_iterator, limit):
        name, shard_id, _ = decompose_shard_iterator(shard_iterator)
        with lock:
            following, records, behind = get_records(self, stream_arn, shard_iterator, limit)
            shard = self.describe_stream(stream_arn=stream_arn, stream_name=name).get_shard(shard_id)
            _, _, last = decompose_shard_iterator(following)
            is_over = not shard.is_open and int(last) >= shard.get_max_sequence_number()
            return None if is_over else following, records, behind

    return got


def receiving_alone(receive):
    def receive_alone(self, queue, count, seconds, *others):
        end = time.time() + seconds
        while True:
            with lock:
                messages = receive(self, queue, count, 0, *others)
            if messages or time.time() >= end:
                return messages
            self.get_queue(queue).wait_for_messages(1)

    return receive_alone


Shard.put_record = alone(Shard.put_record)
Shard.get_records = alone(Shard.get_records)
Stream.get_shard_for_key = of_open_shards(Stream.get_shard_for_key)
Stream.put_record = alone(Stream.put_record)
Stream.split_shard = keeping_records(Stream.split_shard)
Stream.merge_shards = keeping_records(Stream.merge_shards)
KinesisBackend.get_records = ending(KinesisBackend.get_records)
KinesisBackend.list_shards = alone(KinesisBackend.list_shards)
SQSBackend.receive_message = receiving_alone(SQSBackend.receive_message)
main(sys.argv[1:])
