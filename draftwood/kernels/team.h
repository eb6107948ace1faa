// PyTorch's threads in one region, which wait for one another between the steps of a computation.
//
// A region of its own for every step takes each time as long as reading some of a small layer's weights.

#pragma once

#include "vectors.h"

#include <atomic>
#include <sched.h>
#include <time.h>

namespace {

constexpr int64_t SPINS = 1 << 12;   // polls before a thread offers its processor to others,
constexpr int64_t YIELDS = 1 << 12;  // and polls before it sleeps between them
constexpr timespec NAP{0, 50000};

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// One of the threads.
struct Member {
    std::atomic<int64_t>& arrived;  // of all threads, at all places so far
    int64_t thread, threads, expected = 0;

    // Waits until all threads have come here; they see what the others have written.
    void wait() {
        expected += threads;
        arrived.fetch_add(1, std::memory_order_acq_rel);
        for (int64_t turn = 0; arrived.load(std::memory_order_acquire) < expected; turn++)
            if (turn < SPINS)
                pause();
            else if (turn < SPINS + YIELDS)
                sched_yield();
            else
                nanosleep(&NAP, nullptr);
    }

    // This thread's part of `count` things.
    Range part(int64_t count) const { return part_of(count, thread, threads); }
};

template <class F> struct Team {
    const OpenMP* openmp;
    F work;
    std::atomic<int64_t> arrived{0};

    static void run(void* given) {
        Team& team = *static_cast<Team*>(given);
        Member member{team.arrived, team.openmp->thread(), team.openmp->threads()};
        team.work(member);
    }
};

// Calls `work` with a Member in each thread.
template <class F> void together(const OpenMP* openmp, F work) {
    Team<F> team{openmp, work};
    openmp->parallel(Team<F>::run, &team, 0, 0);
}

}  // namespace
