"""HPACK by python3-hpack: commands on standard input, one a line; each `encode` and `decode` is answered by a line.

encoder           begins a connection that is written to
table BYTES       says what its table has from now on
encode CODED FIELD...  writes a block, Huffman-coded if CODED is 1: in hexadecimal
decoder           begins a connection that is read from
allow BYTES       says what its table may have at most
decode BLOCK      reads a block: its fields

A field is NAME:VALUE:SENSITIVE, the first two in hexadecimal, the last 0 or 1.
"""
import sys

from hpack import Decoder, Encoder, HeaderTuple, NeverIndexedHeaderTuple


def field_of(text):
    name, value, sensitive = text.split(":")
    kind = NeverIndexedHeaderTuple if sensitive == "1" else HeaderTuple
    return kind(bytes.fromhex(name), bytes.fromhex(value))


def text_of(field):
    name, value = field
    return f"{name.hex()}:{value.hex()}:{0 if field.indexable else 1}"


encoder, decoder = Encoder(), Decoder()
for line in sys.stdin:
    command, *words = line.split()
    if command == "encoder":
        encoder = Encoder()
    elif command == "table":
        encoder.header_table_size = int(words[0])
    elif command == "encode":
        print(encoder.encode([field_of(word) for word in words[1:]], huffman=words[0] == "1").hex())
    elif command == "decoder":
        decoder = Decoder()
    elif command == "allow":
        decoder.max_allowed_table_size = int(words[0])
    elif command == "decode":
        print(*[text_of(field) for field in decoder.decode(bytes.fromhex(words[0]), raw=True)])
    else:
        sys.exit(f"{command} is no command")
