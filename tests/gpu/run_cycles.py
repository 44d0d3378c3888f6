#!/usr/bin/env python3
# SPDX-License-Identifier: AGPL-3.0-only
"""Recovery cycles of the user's own command: ranks of `spark-comm run` decode on GPUs of this
machine, and again and again one of them is lost and another process started in its place.

--how kill: the victim is killed. stop: it is frozen, and killed when the others are well again.
return: it is told to stop, and started again once it has left.

In each cycle every survivor must name the right cause, and all ranks must go on; nobody may lose an
epoch unstruck. At the end each must leave with status 0 and all sums right. A line a cycle. Exits
with 0, 1 when something was not so, and 77 where there are too few GPUs.
"""

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

SKIPPED = 77
TAIL_LINES = 8
CAUSES = {'kill': 'PEER_DEAD', 'stop': 'PEER_SILENT', 'return': 'CLOSED'}
SIGNALS = {'kill': signal.SIGKILL, 'stop': signal.SIGSTOP, 'return': signal.SIGINT}
SOCKETS = {'NCCL_P2P_DISABLE': '1', 'NCCL_SHM_DISABLE': '1', 'NCCL_NET': 'Socket'}

# What a rank tells, and what it then has told of.
RATE = re.compile(r'token \d+, [\d.]+ tokens/s(, with wrong results)?$')
LOST = re.compile(r'after token \d+: ')
RECOVERED = re.compile(r'epoch \d+: recovered from: ((\w+ rank \d+\b)?.*)')
FIRST = re.compile(r'token \d+ is the first since the loss')
SUMS = re.compile(r'^[1-9]\d* sums verified, 0 wrong$')


class Failure(Exception):
    """Something was not as it must be: what, in one line."""


class Rank:
    """One process of the command. A thread reads along; `heard` guards what it has told."""

    def __init__(self, number, command, environment, heard):
        self.number = number
        self.heard = heard
        self.lines = []     # (when, text)
        self.ended = False  # and has told everything
        self.next = 0       # the first line that no wait has passed
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, errors='replace')
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.heard:
                self.lines.append((time.monotonic(), line.rstrip()))
                self.heard.notify_all()
        self.process.wait()
        with self.heard:
            self.ended = True
            self.heard.notify_all()

    def pass_line(self, pattern):
        """Goes on behind the next such line: when it came and its match, or None."""
        for index in range(self.next, len(self.lines)):
            when, text = self.lines[index]
            found = pattern.search(text)
            if found:
                self.next = index + 1
                return when, found
        return None

    def all_told(self, pattern):
        with self.heard:
            return [found for _, text in self.lines if (found := pattern.search(text))]


class World:
    """The ranks, and the processes that were of them."""

    def __init__(self, chosen):
        self.chosen = chosen
        self.heard = threading.Condition()
        self.port = free_port()
        self.ranks = {}
        self.former = []

    def start(self, number):
        chosen, shared = self.chosen, self.chosen.device is not None
        command = [chosen.program, 'run', '--rank', str(number), '--world', str(chosen.world),
                   '--master', '127.0.0.1:%d' % self.port, '--verify',
                   '--device', str(chosen.device if shared else number)]
        environment = dict(os.environ)
        if chosen.sockets or shared:
            environment = {'NCCL_SOCKET_IFNAME': 'lo', **environment, **SOCKETS}
        if shared:  # NCCL refuses two ranks on one GPU, unless it takes them for two hosts
            environment['NCCL_HOSTID'] = 'rank-%d' % number
        self.ranks[number] = Rank(number, command + ['--graph'] * chosen.graph, environment,
                                  self.heard)

    def strike(self):
        """The victim is none of the ranks from now on; it is returned."""
        victim = self.ranks.pop(self.chosen.victim)
        self.former.append(victim)
        self.pass_all_lines()
        victim.process.send_signal(SIGNALS[self.chosen.how])
        return victim

    def pass_all_lines(self):
        with self.heard:
            for rank in self.ranks.values():
                rank.next = len(rank.lines)

    def await_so(self, so, what):
        """Until so() gives something, which is returned."""
        with self.heard:
            found = self.heard.wait_for(so, self.chosen.limit)
        if not found:
            raise Failure('%s within %g s' % (what, self.chosen.limit))
        return found

    def await_line(self, rank, pattern, what):
        """When the rank's next such line came, and its match. Meanwhile no rank may end."""
        missing = 'rank %d has not told %s' % (rank.number, what)

        def told():
            found = rank.pass_line(pattern)
            for other in self.ranks.values():
                if other.ended and not found:
                    raise Failure('%s; rank %d has ended with status %d'
                                  % (missing, other.number, other.process.returncode))
            return found

        return self.await_so(told, missing)

    def await_progress(self):
        for rank in self.ranks.values():
            _, found = self.await_line(rank, RATE, 'progress')
            if found[1]:
                raise Failure('rank %d tells wrong results' % rank.number)

    def await_end(self, rank):
        self.await_so(lambda: rank.ended, 'rank %d has not ended' % rank.number)

    def await_good_end(self, rank):
        self.await_end(rank)
        if rank.process.returncode != 0 or not rank.all_told(SUMS):
            raise Failure('rank %d has ended with status %d, expected 0 and all sums right'
                          % (rank.number, rank.process.returncode))

    def end_processes(self):
        processes = [*self.former, *self.ranks.values()]
        for rank in processes:
            rank.process.kill()
        with self.heard:
            self.heard.wait_for(lambda: all(rank.ended for rank in processes), self.chosen.limit)

    def last_lines(self):
        with self.heard:
            return ['rank %d%s  %s' % (rank.number, ' (former)' * (rank in self.former), text)
                    for rank in [*self.former[-1:], *self.ranks.values()]
                    for _, text in rank.lines[-TAIL_LINES:]]


def check_causes(survivors, right, strikes):
    """One loss and one recovery a strike, the last for the right cause."""
    for rank in survivors:
        losses, causes = len(rank.all_told(LOST)), rank.all_told(RECOVERED)
        if losses != strikes or len(causes) != strikes:
            raise Failure('rank %d has told %d losses and %d recoveries'
                          % (rank.number, losses, len(causes)))
        if causes[-1][2] != right:
            raise Failure('rank %d has recovered from %s, expected %s'
                          % (rank.number, causes[-1][1], right))


def play_cycle(world, number):
    """How long after the strike all survivors had a token again."""
    chosen = world.chosen
    struck = time.monotonic()
    former = world.strike()
    survivors = list(world.ranks.values())
    for rank in survivors:
        world.await_line(rank, LOST, 'the loss')
    if chosen.how == 'return':
        world.await_good_end(former)
    world.start(chosen.victim)
    seconds = max(world.await_line(rank, FIRST, 'its first token since the loss')[0]
                  for rank in survivors) - struck
    former.process.kill()
    world.await_end(former)
    world.pass_all_lines()
    world.await_progress()
    right = '%s rank %d' % (CAUSES[chosen.how], chosen.victim)
    check_causes(survivors, right, number)
    print('cycle %3d  %s, first token after %.3f s' % (number, right, seconds), flush=True)
    return seconds


def play(world):
    chosen = world.chosen
    for number in range(chosen.world):
        world.start(number)
    world.await_progress()
    seconds = [play_cycle(world, number) for number in range(1, chosen.cycles + 1)]
    for rank in world.ranks.values():
        rank.process.terminate()
    for rank in world.ranks.values():
        world.await_good_end(rank)
    print('%d cycles of %s, %d ranks: first token after %.3f to %.3f s, all sums right'
          % (len(seconds), chosen.how, chosen.world, min(seconds), max(seconds)))


def free_port():
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        return taken.getsockname()[1]


def listed_gpus():
    try:
        told = subprocess.run(['nvidia-smi', '-L'], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    return len(re.findall('^GPU', told.stdout, re.MULTILINE))


def read_options():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('--cycles', type=int, default=5, metavar='N')
    options.add_argument('--how', choices=list(CAUSES), default='kill')
    options.add_argument('--world', type=int, default=2, metavar='W', help='ranks; default 2')
    options.add_argument('--victim', type=int, metavar='R', help='default: the last')
    options.add_argument('--sockets', action='store_true', help='NCCL keeps to sockets')
    options.add_argument('--device', type=int, metavar='D',
                         help='all ranks on this GPU, and NCCL on sockets; default: a GPU each')
    options.add_argument('--graph', action='store_true', help='each step is a CUDA graph')
    options.add_argument('--program', default='build/release/spark-comm', metavar='PATH')
    options.add_argument('--limit', type=float, default=60, metavar='S',
                         help='no wait may take longer; default 60')
    options.add_argument('--gpus', type=int, metavar='N',
                         help='how many there are; default: as many as nvidia-smi lists')
    chosen = options.parse_args()
    chosen.victim = chosen.world - 1 if chosen.victim is None else chosen.victim
    if chosen.cycles < 1 or not 2 <= chosen.world <= 64 or not 0 <= chosen.victim < chosen.world:
        options.error('expected at least 1 cycle, 2 to 64 ranks, and a victim among them')
    if chosen.how == 'stop' and chosen.victim == 0:
        options.error('--how stop: a frozen rank 0 keeps its port, no other can take its place')
    return chosen


def main():
    chosen = read_options()
    gpus = listed_gpus() if chosen.gpus is None else chosen.gpus
    needed = chosen.world if chosen.device is None else chosen.device + 1
    if gpus < needed:
        print('skipped: %d GPUs where %d are needed' % (gpus, needed))
        sys.exit(SKIPPED)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # not without ending the ranks
    world = World(chosen)
    try:
        play(world)
    except Failure as failure:
        print('FAIL  after %d strikes: %s' % (len(world.former), failure),
              *world.last_lines(), sep='\n')
        sys.exit(1)
    finally:
        world.end_processes()


if __name__ == '__main__':
    main()
