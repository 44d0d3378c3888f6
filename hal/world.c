// SPDX-License-Identifier: AGPL-3.0-only
//
// From a config to a world: the one that was chosen, its links sealed if there is a key.
#include "hal/choose.h"

#include "hal/key.h"
#include "hal/sealed.h"

#include <stdio.h>
#include <string.h>

static sc_status seal(const struct sc_config *config, struct sc_world *world, char *why,
                      size_t why_bytes) {
    uint8_t key[SC_KEY_BYTES];
    if (config->key == NULL && config->key_file == NULL)
        return SC_OK;
    sc_status status = SC_OK;
    if (config->key_file != NULL)
        status = sc_key_read(config->key_file, key, why, why_bytes);
    else
        memcpy(key, config->key, sizeof key);
    if (status == SC_OK) {
        status = sc_sealed_create(world->link, world->host, key, &world->sealed);
        snprintf(why, why_bytes, "keyed links: %s", sc_status_sentence(status));
    }
    explicit_bzero(key, sizeof key);
    if (status == SC_OK)
        world->link = sc_sealed_link(world->sealed);
    return status;
}

sc_status sc_choose(const struct sc_config *config, struct sc_world *out, char *why,
                    size_t why_bytes) {
    struct sc_world world = {0};
    sc_status status = sc_choose_world(config, &world, why, why_bytes);
    if (status != SC_OK)
        return status;
    status = seal(config, &world, why, why_bytes);
    if (status != SC_OK)
        sc_world_release(&world);
    else
        *out = world;
    return status;
}

void sc_world_release(struct sc_world *world) {
    sc_sealed_destroy(world->sealed);
    if (world->release != NULL)
        world->release(world->owner);
}
